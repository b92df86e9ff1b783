"""Records to a repaired checkpoint: learn, pass the gate, write. Goes on where it was interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveola.artifact import Checkpoint, Finding
from foveola.learn.distil.averaging import Weights, between, snapshot
from foveola.learn.distil.boxes import TokenHeads, fit_heads
from foveola.learn.distil.gate import GateOptions, Sight, Verdict, judge, pass_gate
from foveola.learn.distil.measure import Marks
from foveola.learn.distil.options import DistilOptions
from foveola.learn.distil.pupil import Pupil, look
from foveola.learn.distil.state import restore, save
from foveola.learn.distil.tail import Example
from foveola.learn.distil.train import Distiller, Lessons, Told, held_back

GUARD_EVERY = 4
STATE = "run.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """What came of a run: the tower's weights that passed (None: none did), and what was seen before and after."""

    weights: Weights | None
    verdict: Verdict
    before: Sight
    after: Sight
    heads: tuple[int, ...]
    steps: int
    seconds: float


def lessons_of(stream: Sequence[Example], old: Sequence[Example]) -> Lessons:
    """Every eighth labelled picture of a class in the stream, and every fourth of a class of the old ones, guard."""
    learnt, kept = held_back(stream)
    counts: dict[int, int] = {}
    taught: list[Example] = []
    guard: list[Example] = []
    for one in old:
        counts[one.label] = counts.get(one.label, 0) + 1
        (guard if counts[one.label] % GUARD_EVERY == 0 else taught).append(one)
    return Lessons(learnt, taught, guard, kept)


def head_classes(stream: Sequence[Example], classes: int, share: float) -> tuple[int, ...]:
    """The classes that are at least ``share`` of the labels of a stream."""
    labels = [one.label for one in stream if one.label >= 0]
    counts = np.bincount(labels, minlength=classes)
    return tuple(int(label) for label in np.flatnonzero(counts >= share * max(1, len(labels))))


def repair(
    pupil: Pupil,
    lessons: Lessons,
    options: DistilOptions,
    folder: Path,
    gate: GateOptions | None = None,
    told: Callable[[Told], None] = lambda told: None,
) -> Repair:
    """Let ``pupil`` learn ``lessons``, with its state in ``folder``, and see what passes the gate."""
    gate = gate or GateOptions()
    began = time.perf_counter()
    torch.manual_seed(options.seed)
    heads = TokenHeads(pupil.width, len(pupil.classes), pupil.grid)
    if options.locating:
        features, _ = look(pupil, [one.pixels for one in lessons.old])
        fit_heads(heads, features, lessons.old, seed=options.seed)
    distiller = Distiller(pupil, heads, lessons, options)
    start = snapshot(distiller.teacher.tower)
    state = folder / STATE
    if state.is_file():
        restore(distiller, state)
    end = distiller.run(told, lambda one: save(one, state))
    common = head_classes(lessons.stream, len(pupil.classes), gate.head)
    before = distiller.sight(start)
    sights: dict[float, Sight] = {}

    def sight_at(share: float) -> Sight:
        sights[share] = distiller.sight(between(start, end, share))
        return sights[share]

    verdict = pass_gate(sight_at, lambda seen: judge(before, seen, common, pupil.classes, gate))
    after = sights[verdict.share or 1.0]
    weights = between(start, end, verdict.share) if verdict.passed else None
    return Repair(weights, verdict, before, after, common, distiller.step, time.perf_counter() - began)


def finding_of(
    found: Repair, lessons: Lessons, options: DistilOptions, source: Checkpoint, asked: dict[str, Any]
) -> Finding:
    """The line of lineage that a repair leaves behind; ``asked`` is the question and its classes."""
    labelled = sum(one.label >= 0 for one in lessons.stream)
    return Finding(
        step="learn.distil",
        changed=(
            f"the vision tower learnt from {len(lessons.stream)} records of a line ({labelled} with labels) under a "
            f"frozen teacher; {found.verdict.share:.0%} of the way passed the gate"
        ),
        before=_figures(found.before),
        after=_figures(found.after),
        seconds=found.seconds,
        options={**options.to_json(), **asked, "source": source.model_hash or source.name, "steps": found.steps},
    )


def _figures(sight: Sight) -> dict[str, float]:
    every = range(len(sight.old.count))
    return {
        f"{name}_{where}": round(float(value), 4)
        for where, seen in (("old", sight.old), ("new", sight.new))
        if sum(seen.count)
        for name, value in (("mean_accuracy", seen.mean_of(every)), ("calibration_error", seen.calibration_error))
    }


def by_class(seen: Marks, classes: Sequence[str]) -> dict[str, dict[str, int]]:
    """Right answers and pictures by class, those without a picture left out."""
    return {
        name: {"right": seen.right[label], "count": seen.count[label]}
        for label, name in enumerate(classes)
        if seen.count[label]
    }
