"""What is taught when: the plan of a run, its learning rate, and the pictures of each step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foveola.tiny.album import Album
from foveola.tiny.batches import (
    CELL_GRIDS,
    EASY_GRIDS,
    LABEL_GRIDS,
    PAGE_GRIDS,
    SCENE_GRIDS,
    SQUARE_GRIDS,
    STRIP_GRIDS,
    WIDE_GRIDS,
    Ease,
    Grid,
    Group,
    Source,
)

PATCHES = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how to train. Steps count optimiser steps; in the first ``looking`` of them only the vision tower
    learns, and in the first ``mute`` nothing is asked about labels. Pictures grow over the first ``growing`` steps; the
    lessons of reading aloud widen over the ``reading`` steps after ``mute``.

    ``real``, ``scene``, ``label`` and ``page`` are how many pictures of ``PATCHES`` patches every thread has in a step
    of each kind (of larger pictures it has fewer). ``more_turns`` are asked about each picture beyond the usual three
    or four. With ``tower`` False the vision tower's blocks rest, and pictures that they saw once are asked about again
    (``album``): the merger and the decoder learn.
    """

    steps: int = 6000
    looking: int = 500
    mute: int = 1200
    decay: int = 2000
    growing: int = 3000
    reading: int = 2500
    warm_up: int = 50
    rate: float = 1.2e-3
    least: float = 0.02
    weight_decay: float = 0.05
    auxiliary: float = 0.5
    real: int = 5
    scene: int = 6
    label: int = 7
    page: int = 6
    more_turns: int = 0
    tower: bool = True
    seed: int = 0
    save_every: int = 50
    threads: int = 2


def rate_at(plan: Plan, step: int) -> float:
    """Warm-up (again when the decoder joins), flat, then a linear decay to ``least`` of the rate."""
    since = step - plan.looking if step >= plan.looking else step
    warm = min(1.0, (since + 1) / plan.warm_up)
    left = (plan.steps - step) / max(1, plan.decay)
    return plan.rate * warm * max(plan.least, min(1.0, left))


def draw_groups(source: Source | Album, plan: Plan, step: int, part: int) -> list[Group]:
    """The groups of one part of a step: real pictures, generated scenes, labels, pages. Small pictures come first.

    All parts of a step have groups of the same sizes, so that threads that share a step end together.
    """
    rng = np.random.default_rng([plan.seed, step])
    grown = min(1.0, step / plan.growing)
    looking = step < plan.looking

    def pick(grids: tuple[Grid, ...]) -> Grid:
        sizes = sorted(grids, key=lambda g: g[0] * g[1])
        most = max(2, round(len(sizes) * (0.35 + 0.65 * grown)))
        sizes = sizes[:most]
        # a size comes as often as it has room for pictures: small ones teach more per second
        often = np.asarray([1 / (rows * columns) for rows, columns in sizes])
        return sizes[int(rng.choice(len(sizes), p=often / often.sum()))]

    square = rng.random() < 0.68
    kind, label_grids, ease = _label_lesson(rng, min(1.0, max(0, step - plan.mute) / plan.reading))
    plain = max(0.0, 0.5 - step / max(1, plan.looking))
    plan_of = [
        ("real", pick(SQUARE_GRIDS if square else WIDE_GRIDS), plan.real, 3, Ease()),
        ("scene", pick(SCENE_GRIDS), plan.scene, 4, Ease()),
        (kind, pick(label_grids), plan.label, 3 if step >= plan.mute else 0, replace(ease, plain=plain)),
        ("page", pick(PAGE_GRIDS), plan.page, 0, Ease(plain=plain)),
    ]
    groups = []
    for i, (kind, grid, base, turns, ease) in enumerate(plan_of):
        count = min(24, max(2, round(base * PATCHES / (grid[0] * grid[1])))) if base else 0
        seed = [plan.seed, step, part, i]
        asked = turns + plan.more_turns if turns and not looking else 0
        if count and (asked or plan.tower):  # resting blocks learn nothing of pictures about which nothing is asked
            groups.append(source.group(kind, grid, count, seed, turns=asked, ease=ease))
    return groups


def _label_lesson(rng: np.random.Generator, progress: float) -> tuple[str, tuple[Grid, ...], Ease]:
    """Reading aloud is learnt in order: single characters in cells, then short codes, then tight strips, then labels of
    all sizes. Later lessons come more and more often; none is dropped at once."""
    ease = Ease(tight=0.85 * max(0.0, 1 - 1.4 * progress), jitter_px=8 + 6 * progress, shrink=1 + 0.4 * progress)
    if rng.random() < max(0.08, 0.4 - 0.8 * progress):
        return "cells", CELL_GRIDS, ease
    if rng.random() < 0.6 - 1.2 * progress:
        return "label", EASY_GRIDS, replace(ease, length=(2, 4))
    return "label", STRIP_GRIDS if rng.random() < 1.1 - 0.9 * progress else LABEL_GRIDS, ease
