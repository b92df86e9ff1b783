"""The line: simplify until nothing is left to simplify, choose fusions, prove each, apply, prove the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from foveola.lower.rewrite.chips.base import Chip
from foveola.lower.rewrite.cost import Cost, cost_of, seconds
from foveola.lower.rewrite.facts import Facts, facts_of
from foveola.lower.rewrite.graph import Array, Replacement, apply
from foveola.lower.rewrite.labels import label
from foveola.lower.rewrite.passes import cancel_transposes, drop_noops, fold_constants, fold_norms
from foveola.lower.rewrite.passes.fuse import Candidate, candidates, replacement_of
from foveola.lower.rewrite.proof import difference, prove
from foveola.lower.rewrite.search import WIDTH, choose
from foveola.lower.rewrite.trace import random_inputs, session, trace

SIMPLIFY: tuple[Callable[[ir.Model, Facts], Iterator[Replacement]], ...] = (
    fold_constants.find,
    drop_noops.find,
    cancel_transposes.find,
    fold_norms.find,
)
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a model. ``applied`` and ``refused`` count per rule; ``reasons`` say what kept others from it.

    ``worst`` is the largest relative difference of any applied rewrite, ``whole`` that of the graph's outputs, where
    the roundings of all of them add up; ``noise`` is what the original differs by when its inputs do so by a bit.
    """

    chip: Chip
    before: Cost
    after: Cost
    applied: Mapping[str, int]
    refused: Mapping[str, int]
    reasons: Mapping[str, int]
    worst: float
    whole: float
    noise: float
    labels: Mapping[str, int]

    @property
    def fewer_kernels(self) -> float:
        """Share of the kernels that are gone."""
        return 1 - self.after.kernels / self.before.kernels if self.before.kernels else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "chip": self.chip.name,
            "measured": {
                what: {"kernels": cost.kernels, "host_kernels": cost.host_kernels, "bytes_moved": cost.bytes_moved}
                for what, cost in (("before", self.before), ("after", self.after))
            },
            "fewer_kernels": self.fewer_kernels,
            "modelled": {
                "before_s": self.before.modelled_s,
                "after_s": self.after.modelled_s,
                "from": self.chip.numbers_from,
            },
            "applied": dict(self.applied),
            "refused_by_proof": dict(self.refused),
            "not_fused": dict(self.reasons),
            "worst_relative_difference": self.worst,
            "whole_relative_difference": self.whole,
            "noise_relative_difference": self.noise,
            "labels": dict(self.labels),
        }


class _Ledger:
    """Proves and applies, and keeps the books."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.applied: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.worst = 0.0
        self._denied: set[tuple[str, str | None]] = set()

    def try_one(self, replacement: Replacement, traced: Mapping[str, Array]) -> bool:
        """Apply the replacement if its proof holds. One that was refused is not tried again."""
        key = (replacement.rule, replacement.was.name)
        if key in self._denied:
            return False
        proof = prove(self.model, replacement, traced)
        if not proof.holds:
            self.refused[replacement.rule] += 1
            self._denied.add(key)
            return False
        apply(self.model, replacement)
        self.applied[replacement.rule] += 1
        self.worst = max(self.worst, proof.relative)
        return True


def rewrite(model: ir.Model, chip: Chip, *, width: int = WIDTH, tell: Progress = lambda what, share: None) -> Report:
    """Rewrite ``model`` (of ``graph.open_model``) for ``chip``, in place. Raises ``Invalid`` where it cannot be run."""
    original = ir.to_proto(model)
    inputs = random_inputs(model.graph.inputs, seed=1)
    tell("running the model", 0.0)
    traced = trace(model, inputs)
    facts = facts_of(model, traced)
    there = label(model, facts, chip)
    before = cost_of((([node], 1.0) for node in model.graph), facts, chip, there)
    ledger = _Ledger(model)
    tell("simplifying", 0.2)
    facts = _simplify(ledger, facts, inputs)
    there = label(model, facts, chip)
    labels = Counter(word for node in model.graph for word in node.metadata_props.get("foveola.labels", "").split())
    found, reasons = candidates(model, facts, chip, there)
    chosen = choose(found, lambda one: _saving(one, facts, chip, there), width)
    tell("pricing", 0.4)
    groups, fused = [], set()
    proven: list[Replacement] = []
    for index, one in enumerate(chosen):
        tell("proving", 0.4 + 0.5 * index / len(chosen))
        replacement = replacement_of(model, chip, one)
        proof = prove(model, replacement, facts.traced)
        if proof.holds:
            proven.append(replacement)
            groups.append((one.nodes, one.rule.speedup))
            fused |= set(one.nodes)
            ledger.worst = max(ledger.worst, proof.relative)
            ledger.applied[one.rule.kernel] += 1
        else:
            ledger.refused[one.rule.kernel] += 1
    single = [((node,), 1.0) for node in model.graph if node not in fused]
    after = cost_of([*groups, *single], facts, chip, there)
    for replacement in proven:
        apply(model, replacement)
    tell("proving the whole", 0.9)
    whole, noise = _whole(original, model)
    return Report(chip, before, after, ledger.applied, ledger.refused, reasons, ledger.worst, whole, noise, labels)


def _saving(one: Candidate, facts: Facts, chip: Chip, there: frozenset[ir.Node]) -> float:
    apart = sum(seconds([node], facts, chip, there) for node in one.nodes if facts.is_kernel(node))
    return apart - seconds(one.nodes, facts, chip, there, one.rule.speedup)


def _simplify(ledger: _Ledger, facts: Facts, inputs: Mapping[str, Array]) -> Facts:
    """Until a round changes nothing. Names of values stay, so what was traced stays true within a round."""
    while True:
        changed = False
        for find in SIMPLIFY:
            gone: set[ir.Node] = set()
            for replacement in list(find(ledger.model, facts)):
                if gone & set(replacement.old) or _stale(replacement, gone):
                    continue
                if ledger.try_one(replacement, facts.traced):
                    changed = True
                    gone |= set(replacement.old)
        if not changed:
            return facts
        RemoveUnusedNodesPass()(ledger.model)
        facts = facts_of(ledger.model, trace(ledger.model, inputs))


def _stale(replacement: Replacement, gone: set[ir.Node]) -> bool:
    """Whether it stands on a node that an earlier one of this round removed."""
    values = [replacement.now, *(value for node in replacement.new for value in node.inputs if value is not None)]
    return any(value.producer() in gone for value in values)


def _whole(original: onnx.ModelProto, model: ir.Model) -> tuple[float, float]:
    old, new = session(original), session(ir.to_proto(model))
    worst = noise = 0.0
    for seed in (1, 2):
        feeds = random_inputs(model.graph.inputs, seed)
        nudged = {
            name: np.nextafter(x, x.dtype.type(np.inf)) if x.dtype.kind == "f" else x for name, x in feeds.items()
        }
        one = old.run(None, feeds)
        for was, now, other in zip(one, new.run(None, feeds), old.run(None, nudged), strict=True):
            worst = max(worst, difference(was, now))
            noise = max(noise, difference(was, other) if was.dtype.kind == "f" else 0.0)
    return worst, noise
