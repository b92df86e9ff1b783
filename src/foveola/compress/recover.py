"""A short recovery after something was taken out: the whole model teaches the rest of it.

loss = hard · CE(targets) + KL(teacher ‖ student) on the answers + ‖h_s - h_t‖² / ‖h_t‖² on the last states of all
tokens

``hard`` is 0 unless asked for: the right answers of a few hundred lessons unteach what the lessons do not ask.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveola.compress.example import Example
from foveola.family import Family

Parameters = Literal["all", "projector"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Steps of ``batch`` examples each; the rate falls to 0 along a cosine after a short warm-up.

    ``parameters`` says what learns: everything, or only the way from the tower to the decoder.
    """

    steps: int
    rate: float = 1e-4
    batch: int = 4
    hard: float = 0.0
    soft: float = 1.0
    states: float = 1.0
    parameters: Parameters = "all"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What the teacher says to an example: log-probabilities [n, V] of the answer, last states [1, T, H]."""

    answers: Tensor
    states: Tensor


@torch.no_grad()
def teach(teacher: nn.Module, examples: Sequence[Example]) -> list[Target]:
    """The teacher's side, once, so that it need not be held while the student learns."""
    found = []
    for example in examples:
        out = teacher(**example.inputs, output_hidden_states=True, use_cache=False)
        found.append(Target(out.logits[example.answers_at].log_softmax(-1), out.hidden_states[-1]))
    return found


def recover(
    student: nn.Module,
    family: Family,
    examples: Sequence[Example],
    targets: Sequence[Target],
    how: Recovery,
    told: Callable[[int, float], None] = lambda done, loss: None,
) -> list[float]:
    """Train ``student`` in place and leave it frozen again; the mean loss of every step."""
    return train(
        student, family, len(examples), how, lambda index: _loss(student, examples[index], targets[index], how), told
    )


def train(
    student: nn.Module,
    family: Family,
    count: int,
    how: Recovery,
    loss_of: Callable[[int], Tensor],
    told: Callable[[int, float], None] = lambda done, loss: None,
) -> list[float]:
    """As ``recover``, with any loss: ``loss_of`` gives that of one of ``count`` examples."""
    parameters = _learning(student, family, how.parameters)
    losses = optimise([{"params": parameters, "lr": how.rate}], count, how, loss_of, told)
    student.requires_grad_(False)
    return losses


def optimise(
    groups: list[dict[str, Any]],
    count: int,
    how: Recovery,
    loss_of: Callable[[int], Tensor],
    told: Callable[[int, float], None] = lambda done, loss: None,
) -> list[float]:
    """Train the parameters of ``groups`` (``params``, and ``lr`` at its highest); the mean loss of every step."""
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)
    highest = [float(group["lr"]) for group in groups]
    parameters = [parameter for group in groups for parameter in group["params"]]
    draw = random.Random(how.seed)
    losses: list[float] = []
    order: list[int] = []
    with torch.enable_grad():
        for step in range(how.steps):
            for group, rate in zip(optimiser.param_groups, highest, strict=True):
                group["lr"] = rate * _rate(step, how.steps)
            optimiser.zero_grad()
            total = 0.0
            for _ in range(how.batch):
                if not order:
                    order = draw.sample(range(count), count)
                loss = loss_of(order.pop()) / how.batch
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            losses.append(total)
            told(step + 1, total)
    return losses


def _loss(student: nn.Module, example: Example, target: Target, how: Recovery) -> Tensor:
    out = student(**example.inputs, output_hidden_states=True, use_cache=False)
    answers = out.logits[example.answers_at].log_softmax(-1)
    hard = F.nll_loss(answers, example.targets)
    soft = F.kl_div(answers, target.answers, log_target=True, reduction="batchmean")
    states = (out.hidden_states[-1] - target.states).square().sum() / target.states.square().sum()
    loss: Tensor = how.hard * hard + how.soft * soft + how.states * states
    return loss


def _learning(student: nn.Module, family: Family, which: Parameters) -> list[nn.Parameter]:
    """Marks what learns; a projector that lies inside the tower is its merger."""
    student.requires_grad_(False)
    if which == "all":
        student.requires_grad_(True)
        return list(student.parameters())
    tower = family.tower
    paths = family.parts.projector or tuple(
        f"{family.parts.vision}.{name}" for name in (tower.merger_norm, tower.merger_up, tower.merger_down)
    )
    chosen = [parameter for path in paths for parameter in student.get_submodule(path).parameters()]
    for parameter in chosen:
        parameter.requires_grad_(True)
    return chosen


def _rate(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / max(1, min(20, steps // 10)))
    return warm * 0.5 * (1 + math.cos(math.pi * step / max(1, steps)))
