"""One training step's pictures: groups of equal size, with turns and the labels of the auxiliary heads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foveola.tiny import labels, real, scenes, words
from foveola.tiny.model import PATCH, merge_order, to_patches
from foveola.tiny.real import Record
from foveola.tiny.scenes import Grey, Scene
from foveola.tiny.teacher import Teacher
from foveola.tiny.turns import Packer, Row, asked_about

Grid = tuple[int, int]
CLASSES = [n for n in words.DEFECTS_ZH if n != words.CLEAN]
CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
UNDER = 1 + len(CLASSES) + len(CHARACTERS)
PLACES = 9
BEFORE = 2 + len(CHARACTERS)
VIEWS = 10
IGNORE = -100
# Share of the questions that lack words.
THIN = 0.5
# How many defects a scene has, as shares from none upwards.
COUNTS = (0.17, 0.6, 0.12, 0.07, 0.04)

CELL_GRIDS: tuple[Grid, ...] = ((2, 6), (2, 8), (2, 10), (4, 8))
EASY_GRIDS: tuple[Grid, ...] = ((2, 4), (2, 6), (2, 8))
STRIP_GRIDS: tuple[Grid, ...] = ((2, 8), (2, 10), (2, 12), (4, 10), (4, 12), (4, 16), (6, 12))
LABEL_GRIDS: tuple[Grid, ...] = (
    (4, 12), (4, 16), (8, 8), (6, 12), (6, 16), (8, 12), (10, 10), (8, 16), (6, 20), (10, 14), (12, 12)
)  # fmt: skip
PAGE_GRIDS: tuple[Grid, ...] = ((4, 8), (6, 6), (4, 16), (8, 8), (6, 12), (10, 10))
SCENE_GRIDS: tuple[Grid, ...] = ((8, 8), (8, 10), (10, 8), (10, 10), (8, 12), (12, 8), (10, 14), (12, 12))
SQUARE_GRIDS: tuple[Grid, ...] = ((8, 8), (10, 10), (12, 12))
WIDE_GRIDS: tuple[Grid, ...] = ((8, 10), (10, 8), (8, 12), (12, 10), (10, 14), (14, 10), (8, 16), (12, 12), (8, 18))


@dataclass(frozen=True, slots=True)
class Group:
    """Pictures of one size.

    Tensors: patches [B, N, 588], or in their place what the tower's blocks say of them, states [B, N, width]; ids,
    segments [B, L]; positions [3, B, L]; slots, targets [B, K]; seen [B, K, n, 2] (the halves of visual tokens that
    show an answer token); told [B, K, 4] (the edges of a box that it tells, else NaN); under [B, N]; places, before
    [B, n, 2]; boxes [B, n, 4] with a mask [B, n]; picture [B]; teacher [B, 1280] or None.
    """

    grid: Grid
    patches: Tensor
    ids: Tensor
    segments: Tensor
    positions: Tensor
    slots: Tensor
    targets: Tensor
    seen: Tensor
    told: Tensor
    under: Tensor
    places: Tensor
    before: Tensor
    boxes: Tensor
    boxed: Tensor
    picture: Tensor
    teacher: Tensor | None
    states: Tensor | None = None


class Drawn(NamedTuple):
    """Pictures of one size with what is known of them, and the teacher's features [B, 1280] of real ones."""

    pictures: list[Scene]
    features: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Ease:
    """How much easier labels are made: see ``labels.label`` and ``labels.cells``. Half of the labels are drawn up to
    ``shrink`` times as large and made smaller, as a picture of more pixels than the model takes is."""

    tight: float = 0.0
    plain: float = 0.0
    jitter_px: float = 12.0
    length: tuple[int, int] = (4, 8)
    shrink: float = 1.0


def _centres(grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    y, x = np.mgrid[0 : grid[0], 0 : grid[1]]
    return (y + 0.5) / grid[0], (x + 0.5) / grid[1]


class Under(NamedTuple):
    """What lies under the middle of every patch, int64 [N] in merge order, 0 for background, IGNORE where nobody knows:
    its class, its place in the code, and the character of the code before it (1: it is the first)."""

    what: NDArray[np.int64]
    place: NDArray[np.int64]
    before: NDArray[np.int64]


def under_patches(scene: Scene, grid: Grid) -> Under:
    """What lies under the patches of a scene."""
    what, place, before = (np.zeros(grid, np.int64) for _ in range(3))
    if not scene.located and not scene.defects and not scene.characters:
        what[:] = IGNORE if scene.names or scene.reading else 0
    y, x = _centres(grid)
    for d in scene.defects:
        x1, y1, x2, y2 = d.box
        inside = (
            (x + 0.5 / grid[1] > x1) & (x - 0.5 / grid[1] < x2) & (y + 0.5 / grid[0] > y1) & (y - 0.5 / grid[0] < y2)
        )
        what[inside] = 1 + CLASSES.index(d.name)
    for character, index, (x1, y1, x2, y2) in scene.characters:
        inside = (x >= x1) & (x < x2) & (y + 0.4 / grid[0] > y1) & (y - 0.4 / grid[0] < y2)
        what[inside] = 1 + len(CLASSES) + CHARACTERS.index(character)
        place[inside] = min(index + 1, PLACES - 1) if index >= 0 else IGNORE
        before[inside] = (2 + CHARACTERS.index(scene.code[index - 1]) if index else 1) if index >= 0 else IGNORE
    return Under(*(merge_order(one) for one in (what, place, before)))


def token_halves(per_patch: NDArray[np.int64]) -> NDArray[np.int64]:
    """[N] in merge order → [N/4, 2]: the left and right half of every merged token, what is not background first."""
    quads = per_patch.reshape(-1, 2, 2)
    return np.where(quads[:, 0] != 0, quads[:, 0], quads[:, 1])


def _token_boxes(scene: Scene, grid: Grid) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The box of the defect that each merged token touches [n, 4], and whether it touches one [n].

    A box is given from the middle of the token, in units of four tokens: the vision tower knows where things are
    relative to one another, not where in the picture (its positions are rotary).
    """
    rows, columns = grid[0] // 2, grid[1] // 2
    boxes, touched = np.zeros((rows * columns, 4), np.float32), np.zeros(rows * columns, bool)
    if not scene.located:
        return boxes, touched
    y, x = np.mgrid[0:rows, 0:columns]
    middle = np.stack([x, y, x, y], -1).reshape(-1, 4) + 0.5
    for d in scene.defects:
        x1, y1, x2, y2 = d.box
        inside = ((x + 1) / columns > x1) & (x / columns < x2) & ((y + 1) / rows > y1) & (y / rows < y2)
        inside = inside.reshape(-1)
        boxes[inside] = ((np.asarray(d.box) * (columns, rows, columns, rows) - middle) / 4)[inside]
        touched |= inside
    return boxes, touched


def _jitter(rng: np.random.Generator, grey: Grey, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resizes to (height, width) and varies light, contrast and noise: uint8 [H, W, 3]."""
    x = np.asarray(Image.fromarray(np.ascontiguousarray(grey)).resize(size[::-1], Image.Resampling.BICUBIC), np.float32)
    mean = float(x.mean())
    x = (x - mean) * rng.uniform(0.75, 1.3) + mean + rng.uniform(-25, 25)
    if rng.random() < 0.3:
        x = x + rng.standard_normal(x.shape).astype(np.float32) * rng.uniform(0, 8)
    return scenes.colour(rng, x, share=0.08)


def _label(rng: np.random.Generator, height: int, width: int, ease: Ease) -> Scene:
    larger = rng.uniform(1, ease.shrink) if rng.random() < 0.5 else 1.0
    drawn = labels.label(
        rng, round(height * larger), round(width * larger), tight=ease.tight, plain=ease.plain, length=ease.length
    )
    if larger == 1:
        return drawn
    small = Image.fromarray(drawn.pixels).resize((width, height), Image.Resampling.BICUBIC)
    return replace(drawn, pixels=np.asarray(small))


class Source:
    """Draws groups; everything drawn depends on the seed given to ``group`` alone."""

    def __init__(self, records: Sequence[Record], packer: Packer, teacher: Teacher | None) -> None:
        self._records = [r for r in records if not r.held_out]
        self._by_source = {s: [r for r in self._records if r.source == s] for s in real.SOURCES}
        self._magnetic = {
            n: [r for r in self._by_source["magnetic_tile"] if r.name == n] for n in real.MAGNETIC.values()
        }
        self._clean = [
            r for r in self._records if not r.name and not r.boxes and not r.reading and r.source != "deeppcb"
        ]
        self._cutouts = real.cutouts(list(records))
        self._packer, self._teacher = packer, teacher
        if teacher is not None:
            teacher.calibrate(self._records)

    def _real(self, rng: np.random.Generator, grid: Grid) -> tuple[Scene, tuple[str, int, int], Grey]:
        aspect = grid[1] / grid[0]
        square = grid[0] == grid[1]
        table = (
            {"neu_det": 0.58, "magnetic_tile": 0.24, "deeppcb": 0.07, "bsdata_ballscrew": 0.03, "crackforest": 0.02,
             "meter_digit": 0.03, "meter_needle": 0.03}
            if square
            else {"magnetic_tile": 0.8, "bsdata_ballscrew": 0.1, "crackforest": 0.05, "deeppcb": 0.05}
        )  # fmt: skip
        source = str(rng.choice(list(table), p=list(table.values())))
        pool = self._by_source[source]
        if source == "magnetic_tile":
            pool = self._magnetic[str(rng.choice(list(self._magnetic)))]
            near = [r for r in pool if abs(np.log(r.grey.shape[1] / r.grey.shape[0] / aspect)) < 0.5]
            pool = near or pool
        record = pool[int(rng.integers(len(pool)))]
        # the teacher's features are kept, so that with one there are few views of each picture
        number = int(rng.integers(2**31 if self._teacher is None else VIEWS))
        crop, scene = real.view(
            record, np.random.default_rng([number, len(record.path), int(aspect * 100), hash_of(record.path)]), aspect
        )
        pixels = _jitter(rng, crop, (grid[0] * PATCH, grid[1] * PATCH))
        return replace(scene, pixels=pixels), (record.path, number, int(aspect * 100)), crop

    def _scene(self, rng: np.random.Generator, grid: Grid, counts: Sequence[float]) -> Scene:
        height, width = grid[0] * PATCH, grid[1] * PATCH
        background = None
        if rng.random() < 0.22:
            record = self._clean[int(rng.integers(len(self._clean)))]
            crop, _ = real.view(record, rng, width / height)
            grey = np.asarray(
                Image.fromarray(np.ascontiguousarray(crop)).resize((width, height), Image.Resampling.BICUBIC),
                np.float32,
            )
            background = (grey, record.material)
        return scenes.scene(rng, height, width, background=background, cutouts=self._cutouts, counts=counts)

    def group(
        self,
        kind: str,
        grid: Grid,
        count: int,
        seed: Sequence[int],
        *,
        turns: int = 4,
        ease: Ease | None = None,
    ) -> Group:
        """``count`` pictures of ``kind`` (real, scene, label, cells, page) and ``grid``, each with ``turns`` questions;
        ``ease`` makes labels easier."""
        rng = np.random.default_rng(list(seed))
        talk = random.Random(int(rng.integers(2**62)))
        return self.ask(grid, self.draw(kind, grid, count, rng, ease or Ease()), turns, talk)

    def draw(self, kind: str, grid: Grid, count: int, rng: np.random.Generator, ease: Ease) -> Drawn:
        """The pictures of ``group``."""
        height, width = grid[0] * PATCH, grid[1] * PATCH
        if kind == "real":
            drawn = [self._real(rng, grid) for _ in range(count)]
            features = None
            if self._teacher is not None:
                features = self._teacher.features([d[1] for d in drawn], [np.ascontiguousarray(d[2]) for d in drawn])
            return Drawn([d[0] for d in drawn], features)
        if kind == "scene":
            return Drawn([self._scene(rng, grid, COUNTS) for _ in range(count)])
        if kind == "cells":
            shape = (grid[0] // 2, grid[1] // 2)
            return Drawn([labels.cells(rng, *shape, jitter_px=ease.jitter_px, plain=ease.plain) for _ in range(count)])
        if kind == "page":
            return Drawn([labels.page(rng, height, width, plain=ease.plain) for _ in range(count)])
        return Drawn([_label(rng, height, width, ease) for _ in range(count)])

    def ask(self, grid: Grid, drawn: Drawn, turns: int, talk: random.Random) -> Group:
        """``turns`` questions about each of the pictures, drawn with ``talk``."""
        rows = [
            self._packer.pack(grid, asked_about(p, talk, turns, thin=THIN) if turns else []) for p in drawn.pictures
        ]
        return collate(grid, drawn.pictures, rows, self._packer.pad, drawn.features)


def hash_of(text: str) -> int:
    """A stable number of a path's last part, for seeding."""
    value = 0
    for c in text.rsplit("/", 1)[-1]:
        value = (value * 131 + ord(c)) % (2**31)
    return value


def collate(grid: Grid, pictures: list[Scene], rows: list[Row], pad: int, teacher: Tensor | None) -> Group:
    """Stacks pictures and rows, padded to the longest."""
    length, answers = max(len(r.ids) for r in rows), max(len(r.slots) for r in rows)

    def padded(arrays: list[NDArray[np.int64]], to: int, fill: int) -> Tensor:
        return torch.from_numpy(np.stack([np.pad(a, (0, to - len(a)), constant_values=fill) for a in arrays]))

    positions = np.stack([np.pad(r.positions, ((0, 0), (0, length - len(r.ids)))) for r in rows], 1)
    under = [under_patches(p, grid) for p in pictures]
    boxes = [_token_boxes(p, grid) for p in pictures]
    classes = [
        CLASSES.index(p.names[0])
        if len(set(p.names)) == 1
        else (IGNORE if p.names or p.reading or p.characters else len(CLASSES))
        for p in pictures
    ]
    return Group(
        grid=grid,
        patches=torch.from_numpy(np.stack([to_patches(p.pixels) for p in pictures])),
        ids=padded([r.ids for r in rows], length, pad),
        segments=padded([r.segments for r in rows], length, -1),
        positions=torch.from_numpy(positions),
        slots=padded([r.slots for r in rows], answers, 0),
        targets=padded([r.targets for r in rows], answers, IGNORE),
        seen=torch.from_numpy(np.stack([np.pad(r.seen, ((0, answers - len(r.seen)), (0, 0), (0, 0))) for r in rows])),
        told=torch.from_numpy(
            np.stack([np.pad(r.told, ((0, answers - len(r.told)), (0, 0)), constant_values=np.nan) for r in rows])
        ),
        under=torch.from_numpy(np.stack([one.what for one in under])),
        places=torch.from_numpy(np.stack([token_halves(one.place) for one in under])),
        before=torch.from_numpy(np.stack([token_halves(one.before) for one in under])),
        boxes=torch.from_numpy(np.stack([b for b, _ in boxes])),
        boxed=torch.from_numpy(np.stack([t for _, t in boxes])),
        picture=torch.tensor(classes),
        teacher=teacher,
    )
