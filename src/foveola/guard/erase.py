"""Regions of a picture are erased for good: what was in them does not enter what replaces them.

A mosaic or a blur of the pixels themselves can be undone by trying candidates: whoever renders the right plate and
pixelates it the same way gets the same blocks. Here the blocks take their colours from the pixels *around* the region,
smoothed across it, with noise, and pixelated: it looks like a mosaic, and by construction it says nothing about what
was there. ``mosaic``, the usual one, is kept to show the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Box = tuple[int, int, int, int]
"""left, top, right, bottom in pixels; the last two are not included."""
Pixels = NDArray[np.uint8]

BLOCKS = 8
NOISE = 14.0
_GREY = 127.0


def widened(box: Box, margin: float, size: tuple[int, int]) -> Box:
    """``box``, larger by ``margin`` of its sides on each, 2 pixels at least, within ``size`` (width, height)."""
    left, top, right, bottom = box
    x, y = max(2, round((right - left) * margin)), max(2, round((bottom - top) * margin))
    return max(0, left - x), max(0, top - y), min(size[0], right + x), min(size[1], bottom + y)


def erase(rgb: Pixels, boxes: Sequence[Box], rng: np.random.Generator) -> Pixels:
    """A copy of ``rgb`` uint8 [H, W, 3] whose ``boxes`` hold smoothed, noisy, pixelated surroundings."""
    out = rgb.copy()
    hidden = np.zeros(rgb.shape[:2], bool)
    for left, top, right, bottom in boxes:
        hidden[top:bottom, left:right] = True
    fills = [_fill(rgb, hidden, box, rng) for box in boxes]
    for (left, top, right, bottom), fill in zip(boxes, fills, strict=True):
        out[top:bottom, left:right] = fill
    return out


def _fill(rgb: Pixels, hidden: NDArray[np.bool_], box: Box, rng: np.random.Generator) -> Pixels:
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    corners = np.array(_sides(rgb, hidden, box))  # [4, 3]: the colour above, below, left and right of it
    y, x = ((np.arange(BLOCKS) + 0.5) / BLOCKS)[:, None], ((np.arange(BLOCKS) + 0.5) / BLOCKS)[None]
    near = np.stack([*np.broadcast_arrays(1 / y, 1 / (1 - y), 1 / x, 1 / (1 - x))], -1)  # [8, 8, 4]
    blocks = (near / near.sum(-1, keepdims=True)) @ corners + rng.normal(0, NOISE, (BLOCKS, BLOCKS, 3))
    small = Image.fromarray(blocks.clip(0, 255).astype(np.uint8)).filter(ImageFilter.BoxBlur(0.5))
    return np.asarray(small.resize((width, height), Image.Resampling.NEAREST))


def _sides(rgb: Pixels, hidden: NDArray[np.bool_], box: Box) -> list[NDArray[np.float64]]:
    """The mean colour of the visible pixels in a band along each side."""
    left, top, right, bottom = box
    x, y = max(4, (right - left) // 6), max(4, (bottom - top) // 6)
    bands = [
        (slice(max(0, top - y), top), slice(left, right)),
        (slice(bottom, bottom + y), slice(left, right)),
        (slice(top, bottom), slice(max(0, left - x), left)),
        (slice(top, bottom), slice(right, right + x)),
    ]
    seen = [rgb[band][~hidden[band]] for band in bands]
    visible = [pixels.mean(0) for pixels in seen if len(pixels)]
    rest = np.mean(visible, 0) if visible else np.full(3, _GREY)
    return [pixels.mean(0) if len(pixels) else rest for pixels in seen]


def mosaic(rgb: Pixels, box: Box, blocks: int = BLOCKS) -> Pixels:
    """The usual mosaic, of the pixels themselves: what ``erase`` is compared with. It can be undone."""
    out = rgb.copy()
    left, top, right, bottom = box
    part = Image.fromarray(rgb[top:bottom, left:right])
    small = part.resize((blocks, blocks), Image.Resampling.BOX)
    out[top:bottom, left:right] = np.asarray(small.resize(part.size, Image.Resampling.NEAREST))
    return out
