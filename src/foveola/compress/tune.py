"""``tune``: the scales of packed matrices, and what is small, learn to answer as the model did before it was rounded.

    loss = KL(whole ‖ rounded), per token of the answers

Codes and zero points stay, so that nothing grows: what learns is one number per block, and the vectors of the
normalisations and biases (the end-to-end phase of Chen et al. 2024, "EfficientQAT", arXiv 2407.11062). Rounding layer
by layer cannot see how the errors of all layers meet in the answer; this can. It holds the whole model in memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveola.artifact import Checkpoint, Finding
from foveola.compress.example import Example, predicted
from foveola.compress.recover import Recovery, optimise
from foveola.compress.samples import check_count, read_examples
from foveola.compress.scaled import ScaledLinear
from foveola.compress.steps import Workbench, step
from foveola.compress.stream import Changed, rewrite
from foveola.exchange import Invalid
from foveola.family import Family, family_of
from foveola.weights.loading import load
from foveola.weights.skeleton import skeleton
from foveola.weights.store import PACKED, packed_formats, read_packed


@dataclass(frozen=True, slots=True)
class Answers:
    """What the whole model says to an example: the states [n, H] that its ``head`` makes the logits of."""

    states: Tensor
    head: nn.Module

    def log_probabilities(self) -> Tensor:
        """[n, V]; made anew each time, since they are many times as large as the states."""
        logits: Tensor = self.head(self.states)
        return logits.log_softmax(-1)


@step("tune")
@dataclass(frozen=True, slots=True)
class Tune:
    """Behind ``awq``, ``round`` or ``precision`` in a recipe: learns from the checkpoint that the recipe began with.

    passes      over the samples
    rate        by how much a step changes a scale, as a share of it; other vectors as a share of their mean magnitude
    batch       samples a step
    held_out    one sample in so many is not learnt from, and decides whether what was learnt is kept
    longest     tokens of a text
    """

    passes: int = 4
    rate: float = 1e-3
    batch: int = 2
    held_out: int = 8
    longest: int = 512

    def __post_init__(self) -> None:
        if min(self.passes, self.batch) < 1 or min(self.held_out, self.longest) < 2 or self.rate <= 0:
            raise ValueError("passes and batch are at least 1, held_out and longest at least 2, rate is above 0")

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Learn and write the same codes with other scales. Raises ``Invalid`` where there is nothing to tune or to
        learn from."""
        start = time.perf_counter()
        whole = _teacher_of(source, bench)
        family = family_of(source.config)
        assert bench.calibration is not None
        examples = read_examples(bench.calibration, source, family, longest=self.longest)
        check_count(examples, self.held_out)
        bench.tell("what the whole model says", 0.0)
        answers = answers_of_whole(load(whole, family_of(whole.config)), family, examples)
        model = load(source, family)
        scaled = scale_in_place(model, source)
        held, seen = examples[:: self.held_out], [n for n in range(len(examples)) if n % self.held_out]
        held_answers = answers[:: self.held_out]
        before = divergence(model, held, held_answers)
        vectors = _vectors(model)
        kept = {name: parameter.detach().clone() for name, parameter in vectors.items()}
        how = Recovery(max(1, self.passes * len(seen) // self.batch), self.rate, self.batch, seed=bench.seed)
        groups: list[dict[str, Any]] = [{"params": [one.change for one in scaled.values()], "lr": how.rate}]
        groups += [{"params": [p], "lr": how.rate * float(p.detach().abs().mean())} for p in vectors.values()]

        def loss(index: int) -> Tensor:
            at = seen[index]
            said = predicted(model, examples[at])[0].log_softmax(-1)
            return F.kl_div(said, answers[at].log_probabilities(), log_target=True, reduction="batchmean")

        def told(done: int, lost: float) -> None:
            bench.tell(f"learning, divergence {lost:.3g}", 0.9 * done / how.steps)

        losses = optimise(groups, len(seen), how, loss, told)
        after = divergence(model, held, held_answers)
        better = after < before
        if not better:
            for name, parameter in vectors.items():
                parameter.data.copy_(kept[name])
            for one in scaled.values():
                one.change.data.zero_()
        _write(source, family, folder, bench, scaled, vectors)
        changed = f"{len(scaled)} matrices' scales and {len(vectors)} vectors learnt in {how.steps} steps"
        return Finding(
            step="compress.tune",
            changed=changed if better else "nothing: what was learnt was no better on the samples held out",
            before={"kl": before},
            after={"kl": min(before, after)},
            seconds=time.perf_counter() - start,
            options={"samples": len(examples), "losses": [round(one, 6) for one in losses]},
        )


def _teacher_of(source: Checkpoint, bench: Workbench) -> Checkpoint:
    if not packed_formats(source.config):
        raise Invalid("the checkpoint has no packed matrices to tune; round it first.", field="use")
    if bench.origin is None or bench.origin.config.get(PACKED):
        raise Invalid(
            "tune learns from the checkpoint that the recipe began with, and that one is rounded already. Put awq and "
            "tune into one recipe and begin with whole weights.",
            field="use",
        )
    if bench.calibration is None:
        raise Invalid("tune learns on samples: add [calibration] samples = FILE to the recipe.", field="calibration")
    return bench.origin


@torch.no_grad()
def answers_of_whole(model: nn.Module, family: Family, examples: Sequence[Example]) -> list[Answers]:
    """What ``model`` says to the examples; of it only the head stays in memory."""
    head = model.get_submodule(family.parts.head)
    read: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    found = []
    try:
        for example in examples:
            read.clear()
            model(**example.inputs, use_cache=False)
            found.append(Answers(read[0][example.answers_at].clone(), head))
    finally:
        handle.remove()
    return found


@torch.no_grad()
def divergence(model: nn.Module, examples: Sequence[Example], answers: Sequence[Answers]) -> float:
    """KL per token from what the whole model says."""
    total, tokens = 0.0, 0
    for example, target in zip(examples, answers, strict=True):
        said, whole = predicted(model, example)[0].log_softmax(-1), target.log_probabilities()
        total += float((whole.exp() * (whole - said)).sum())
        tokens += len(said)
    return total / tokens


def scale_in_place(model: nn.Module, source: Checkpoint) -> dict[str, ScaledLinear]:
    """Replace the packed linear layers inside of ``model``; path -> what stands there now."""
    found: dict[str, ScaledLinear] = {}
    head = getattr(model, "get_output_embeddings", lambda: None)()
    for path, (form, inner) in packed_formats(source.config).items():
        layer = model.get_submodule(path)
        if isinstance(layer, nn.Linear) and layer is not head:
            found[path] = ScaledLinear(read_packed(source, path, form, inner), layer.bias)
            model.set_submodule(path, found[path])
    return found


def _vectors(model: nn.Module) -> dict[str, nn.Parameter]:
    """What learns besides: normalisations and biases, those of the replaced layers among them."""
    found = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.ndim == 1 and float(parameter.detach().abs().mean()) > 0
    }
    for parameter in found.values():
        parameter.requires_grad_()
    return found


def _write(
    source: Checkpoint,
    family: Family,
    folder: Path,
    bench: Workbench,
    scaled: dict[str, ScaledLinear],
    vectors: dict[str, nn.Parameter],
) -> None:
    fresh: dict[str, Tensor] = {f"{path}.weight_scales": one.scales().detach().half() for path, one in scaled.items()}
    fresh |= {name: parameter.detach() for name, parameter in vectors.items()}

    def change(block: str, tensors: dict[str, Tensor]) -> Changed:
        return Changed({name: fresh.get(name, tensor) for name, tensor in tensors.items()})

    rewrite(source, skeleton(source, family), folder, bench.journal, change, bench.tell)
