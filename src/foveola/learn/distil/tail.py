"""Rare classes come up more often: which class memory shows, and pictures in which a rare defect is pasted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
_SHARE = (0.3, 0.8)  # of the side of the picture, for what is pasted


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A picture as the model sees it: uint8 [H, W, 3].

    ``label`` is a class, -1 where nobody said. ``boxes`` float32 [n, 5]: class and x1, y1, x2, y2 as shares of the
    sides; ``located`` says that they are complete. ``old``: from before the stream. ``mixed`` is (class, share) of a
    second defect that was pasted into it.
    """

    pixels: Pixels
    label: int = -1
    boxes: NDArray[np.float32] | None = None
    located: bool = False
    old: bool = False
    mixed: tuple[int, float] | None = None


def class_shares(counts: NDArray[np.float64], labels: list[int], power: float) -> NDArray[np.float64]:
    """How likely memory shows each of ``labels``: ``(count + 1) ** -power``, normalised. Power 0: all alike."""
    raw = (counts[labels] + 1.0) ** -power
    shares: NDArray[np.float64] = raw / raw.sum()
    return shares


def restyled(pixels: Pixels, model: Pixels) -> Pixels:
    """``pixels`` with the light of ``model``: its distribution of grey levels, channel by channel."""
    out = np.empty_like(pixels)
    for channel in range(pixels.shape[2]):
        levels = np.sort(model[:, :, channel], axis=None)
        of, counts = np.unique(pixels[:, :, channel], return_counts=True)
        ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
        table = np.zeros(256, np.uint8)
        table[of] = levels[(ranks * len(levels)).astype(np.int64).clip(0, len(levels) - 1)]
        out[:, :, channel] = table[pixels[:, :, channel]]
    return out


def flipped(example: Example, across: bool, down: bool) -> Example:
    """``example`` mirrored left to right and top to bottom, its boxes with it."""
    pixels = example.pixels[:: -1 if down else 1, :: -1 if across else 1]
    boxes = example.boxes
    if boxes is not None and len(boxes):
        boxes = boxes.copy()
        if across:
            boxes[:, [1, 3]] = 1 - boxes[:, [3, 1]]
        if down:
            boxes[:, [2, 4]] = 1 - boxes[:, [4, 2]]
    return replace(example, pixels=np.ascontiguousarray(pixels), boxes=boxes)


def paste(onto: Example, rare: Example, rng: np.random.Generator) -> Example:
    """``onto`` with one of the defects of ``rare`` pasted into it, and both in its label by their share of the area.

    Copy-paste (Ghiasi et al. 2021, arXiv 2012.07177) with the labels of CutMix (Yun et al. 2019, arXiv 1905.04899). A
    picture without boxes gives a random part of itself. Light is matched to what lies around. ``onto`` comes back as
    it is where it has no label, or has been pasted into already.
    """
    if onto.label < 0 or onto.mixed is not None or onto.label == rare.label:
        return onto
    height, width = onto.pixels.shape[:2]
    cut = _cut(rare, rng)
    share = rng.uniform(*_SHARE)
    h, w = max(4, int(height * share)), max(4, int(width * share))
    patch = _resized(cut, (h, w)).astype(np.float32)
    y, x = int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1))
    region = onto.pixels[y : y + h, x : x + w].astype(np.float32)
    patch += (region.mean() - patch.mean()) * rng.uniform(0.0, 0.7)
    edge = np.minimum(np.minimum.outer(_rise(h), _rise(w)), 1.0)[:, :, None]
    pixels = onto.pixels.copy()
    pixels[y : y + h, x : x + w] = (region * (1 - edge) + patch * edge).clip(0, 255).astype(np.uint8)
    area = h * w / (height * width)
    return replace(onto, pixels=pixels, boxes=None, located=False, mixed=(rare.label, area))


def _cut(example: Example, rng: np.random.Generator) -> Pixels:
    height, width = example.pixels.shape[:2]
    if example.boxes is not None and len(example.boxes):
        _, x1, y1, x2, y2 = example.boxes[int(rng.integers(len(example.boxes)))]
        top, left = int(y1 * height), int(x1 * width)
        bottom, right = max(top + 4, int(y2 * height)), max(left + 4, int(x2 * width))
        return example.pixels[top:bottom, left:right]
    h, w = int(height * rng.uniform(0.5, 1.0)), int(width * rng.uniform(0.5, 1.0))
    y, x = int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1))
    return example.pixels[y : y + h, x : x + w]


def _resized(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    rows = (np.arange(size[0]) * pixels.shape[0] / size[0]).astype(np.int64)
    columns = (np.arange(size[1]) * pixels.shape[1] / size[1]).astype(np.int64)
    resized: Pixels = pixels[rows][:, columns]
    return resized


def _rise(length: int) -> NDArray[np.float64]:
    """From the edges to the middle: 0 to above 1."""
    place = np.arange(length)
    return (np.minimum(place, place[::-1]) + 1) / max(1.0, 0.15 * length)
