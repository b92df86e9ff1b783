"""What is taught when: the plan of a run, its learning rate, and the pictures of each step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foveola.tiny.batches import (
    CELL_GRIDS,
    EASY_GRIDS,
    LABEL_GRIDS,
    SCENE_GRIDS,
    SQUARE_GRIDS,
    STRIP_GRIDS,
    WIDE_GRIDS,
    Ease,
    Grid,
    Group,
    Source,
)

PATCHES = 110


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how to train. Steps count optimiser steps; the first ``looking`` of them are vision only, the last
    ``talking`` the decoder only. Pictures grow over the first ``growing`` steps, reading lessons widen over the first
    ``reading``.

    ``real``, ``scene`` and ``label`` are how many pictures of ``PATCHES`` patches a step has of each kind (of smaller
    pictures it has more). Every thread computes its own share of a step.
    """

    steps: int = 9000
    looking: int = 900
    talking: int = 0
    decay: int = 2500
    growing: int = 3500
    reading: int = 6500
    warm_up: int = 80
    rate: float = 1.2e-3
    least: float = 0.02
    weight_decay: float = 0.05
    auxiliary: float = 0.5
    real: int = 5
    scene: int = 4
    label: int = 5
    seed: int = 0
    save_every: int = 100
    threads: int = 2


def rate_at(plan: Plan, step: int) -> float:
    """Warm-up (again when the decoder joins), flat, then a linear decay to ``least`` of the rate."""
    since = step - plan.looking if step >= plan.looking else step
    warm = min(1.0, (since + 1) / plan.warm_up)
    left = (plan.steps - step) / max(1, plan.decay)
    return plan.rate * warm * max(plan.least, min(1.0, left))


def draw_groups(source: Source, plan: Plan, step: int, part: int) -> list[Group]:
    """The three groups of one part of a step: real pictures, generated scenes, labels. Small pictures come first.

    All parts of a step have groups of the same sizes, so that threads that share a step end together.
    """
    rng = np.random.default_rng([plan.seed, step])
    talking = step >= plan.steps - plan.talking
    grown = 0.2 if talking else min(1.0, step / plan.growing)
    looking = step < plan.looking

    def pick(grids: tuple[Grid, ...]) -> Grid:
        sizes = sorted(grids, key=lambda g: g[0] * g[1])
        most = max(2, round(len(sizes) * (0.25 + 0.75 * grown)))
        sizes = sizes[:most]
        # a size comes as often as it has room for pictures: small ones teach more per second
        often = np.asarray([1 / (rows * columns) for rows, columns in sizes])
        return sizes[int(rng.choice(len(sizes), p=often / often.sum()))]

    square = rng.random() < 0.68
    kind, label_grids, ease = _label_lesson(rng, min(1.0, step / plan.reading))
    plan_of = [
        ("real", pick(SQUARE_GRIDS if square else WIDE_GRIDS), plan.real, 3),
        ("scene", pick(SCENE_GRIDS), plan.scene, 4),
        (kind, pick(label_grids), plan.label, 2),
    ]
    groups = []
    for i, (kind, grid, base, turns) in enumerate(plan_of):
        # about the same number of patches in every group
        count = min(24, max(2, round(base * PATCHES / plan.threads / (grid[0] * grid[1]))))
        seed = [plan.seed, step, part, i]
        count = 36 if talking and kind == "scene" else count
        groups.append(source.group(kind, grid, count, seed, turns=1 if looking else turns, ease=ease, placing=talking))
    return groups


def _label_lesson(rng: np.random.Generator, progress: float) -> tuple[str, tuple[Grid, ...], Ease]:
    """Reading is learnt in order: single characters in cells on plain paper, then any paper and font, then short codes,
    then tight strips, then labels of all sizes. Later lessons come more and more often; none is dropped at once."""
    ease = Ease(
        tight=0.85 * max(0.0, 1 - 1.6 * progress),
        plain=max(0.0, 1 - 4 * progress),
        jitter_px=2 + 12 * min(1.0, progress / 0.4),
    )
    if rng.random() < max(0.25, 0.95 - 1.6 * progress):
        return "cells", CELL_GRIDS, ease
    if rng.random() < 1.0 - 1.5 * progress:
        return "label", EASY_GRIDS, replace(ease, length=(2, 4))
    return "label", STRIP_GRIDS if rng.random() < 1.1 - 1.3 * progress else LABEL_GRIDS, ease
