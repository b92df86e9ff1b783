"""What every unit is worth: scores from gradients, from weights, and from a search over soft masks.

The scores that the field compares with (random, magnitude, Wanda) are here beside ours, so that all of them go
through the same selection, cutting and recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from foveola.compress.coupling import Form, Importance, PositionGates, by_modality, coupled_gradients, coupling
from foveola.compress.example import Example, predicted
from foveola.compress.repair import Moments
from foveola.compress.units import UnitGroup, gated, linear

Scores = dict[str, Tensor]
"""Group -> score of every unit [units], larger for what should stay."""


def gather_importance(
    model: nn.Module,
    groups: Sequence[UnitGroup],
    examples: Iterable[Example],
    told: Callable[[int], None] = lambda done: None,
) -> Importance:
    """Gradients of every unit's gate, told apart by the tokens that they came through, over ``examples``.

    The loss is the answer's cross-entropy. In the tower, where every token is a vision token, only that modality has
    a gradient.
    """
    importance = Importance({group.name: group.count for group in groups})
    for done, example in enumerate(examples, 1):
        gates = {group.name: PositionGates(group.unit_of_column(), group.count) for group in groups}
        with torch.enable_grad(), ExitStack() as stack:
            for group in groups:
                consumer = linear(model, group.consumer)
                stack.callback(consumer.register_forward_pre_hook(gates[group.name].hook).remove)
            logits, targets = predicted(model, example)
            loss = F.cross_entropy(logits, targets)
            passed = [group for group in groups if gates[group.name].values is not None]  # texts pass by the tower
            values = [v for group in passed if (v := gates[group.name].values) is not None]
            found = torch.autograd.grad(loss, values, allow_unused=True)
        by: dict[str, dict[str, Tensor]] = {"vision": {}, "text": {}}
        for group, gradient in zip(passed, found, strict=True):
            if gradient is None:
                continue
            if group.half == "vision":
                by["vision"][group.name] = gradient.reshape(-1, group.count).sum(0)
            else:
                for modality, part in by_modality(gradient, example.is_vision).items():
                    by[modality][group.name] = part
        importance.add(by)
        told(done)
    return importance


def gather_moments(model: nn.Module, groups: Sequence[UnitGroup], examples: Iterable[Example]) -> dict[str, Moments]:
    """Moments of what every group's consumer reads, by the group's name."""
    found: dict[str, Moments] = {}

    def look(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if name in found:
                found[name].add(inputs[0])
            else:
                found[name] = Moments.of(inputs[0])

        return hook

    with ExitStack() as stack, torch.no_grad():
        for group in groups:
            stack.callback(linear(model, group.consumer).register_forward_pre_hook(look(group.name)).remove)
        for example in examples:
            predicted(model, example)
    return found


@torch.no_grad()
def weight_scores(model: nn.Module, groups: Sequence[UnitGroup], moments: Mapping[str, Moments] | None) -> Scores:
    """Magnitude: the norm of a unit's consumer columns; with ``moments``, Wanda: Σ |W_ij| ‖X_j‖ over them
    (Sun et al. 2023, arXiv 2306.11695). Both are taken relative to the group's mean, since layers differ in scale."""
    scores: Scores = {}
    for group in groups:
        weight = linear(model, group.consumer).weight
        if moments is None:
            columns = weight.square().sum(0)
        else:
            columns = weight.abs().sum(0) * moments[group.name].gram.diagonal().clamp(min=0).sqrt()
        score = columns[group.columns].sum(1)
        scores[group.name] = score / score.mean().clamp(min=1e-30)
    return scores


def random_scores(groups: Sequence[UnitGroup], seed: int) -> Scores:
    """Scores that know nothing."""
    generator = torch.Generator().manual_seed(seed)
    return {group.name: torch.rand(group.count, generator=generator) for group in groups}


@dataclass(frozen=True, slots=True)
class Search:
    """A search over soft masks: how many steps, which form of the regulariser, and how much it weighs.

    ``share`` of the units' cost is to go; a penalty pulls the gates there.
    """

    steps: int
    share: float
    a: float = 0.3
    form: Form = "spec"
    weight: float = 0.1
    rate: float = 0.15
    penalty: float = 50.0


def search_gates(
    model: nn.Module,
    groups: Sequence[UnitGroup],
    examples: Sequence[Example],
    unit_costs: Mapping[str, float],
    search: Search,
    told: Callable[[int], None] = lambda done: None,
) -> tuple[Scores, list[dict[str, float]]]:
    """Gates (0..1) of every unit after ``search``, and the losses of every step.

    Minimises, over the masks' logits alone, KL of the answers to those of the whole model (text), the relative error
    of the last states on vision tokens (vision), and the coupling of the gradients of these two.
    """
    logits = {group.name: torch.full((group.count,), 3.0, requires_grad=True) for group in groups}
    wanted = [_outputs(model, example) for example in examples]
    optimiser = torch.optim.Adam(logits.values(), lr=search.rate)
    losses: list[dict[str, float]] = []
    for step in range(search.steps):
        index = step % len(examples)
        with torch.enable_grad():
            found = _step(model, groups, examples[index], wanted[index], logits, unit_costs, search)
            loss = found["text"] + found["vision"] + search.weight * found["coupling"]
            over = (found["kept"] - (1 - search.share)).clamp(min=0)
            optimiser.zero_grad()
            (loss + search.penalty * over.square()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append({name: float(value.detach()) for name, value in found.items()})
        told(step + 1)
    return {name: logit.detach().sigmoid() for name, logit in logits.items()}, losses


def _step(
    model: nn.Module,
    groups: Sequence[UnitGroup],
    example: Example,
    wanted: tuple[Tensor, Tensor],
    logits: Mapping[str, Tensor],
    unit_costs: Mapping[str, float],
    search: Search,
) -> dict[str, Tensor]:
    """The losses of one example under the masks, and the share of the cost that they keep."""
    gates = {name: logit.sigmoid() for name, logit in logits.items()}
    # fused attention has no second derivative
    with sdpa_kernel(SDPBackend.MATH), gated(model, groups, gates):
        text, vision = _distances(_outputs(model, example), wanted)
    whole = sum(unit_costs[group.name] * group.count for group in groups)
    kept = torch.stack([unit_costs[name] * gate.sum() for name, gate in gates.items()]).sum() / whole
    g_v, g_l = coupled_gradients(vision, text, list(logits.values()))
    coupled = coupling(g_v, g_l, a=search.a, form=search.form)
    return {"text": text, "vision": vision, "coupling": coupled, "kept": kept}


def _outputs(model: nn.Module, example: Example) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the answer's tokens [T, V], last states of the vision tokens [n, H]."""
    out = model(**example.inputs, output_hidden_states=True, use_cache=False)
    states = out.hidden_states[-1][example.is_vision]
    return out.logits[example.answers_at].log_softmax(-1), states


def _distances(got: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """KL of the answers, and the relative squared error of the states (0 where there is no picture)."""
    answers, states = (part.detach() for part in wanted)
    text = F.kl_div(got[0], answers, log_target=True, reduction="batchmean")
    if not len(states):
        return text, got[0].sum() * 0
    return text, (got[1] - states).square().sum() / states.square().sum()
