"""How a picture is encoded, in three numbers that hardly depend on what it shows: block edges, fine detail, bits.

A camera whose compression changes shows the same things; what changes is the grid of eight pixels that JPEG and most
video codecs leave (Wang, Sheikh and Bovik 2002), the share of detail between neighbours, and the bits per pixel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_PX = 8
WINDOW_PX = 160
LEAST_PX = 3 * BLOCK_PX
_FLOOR = 0.05  # of a grey level: a step below it is none

Texture = tuple[float, float, float]


def texture(rgb: NDArray[np.uint8], encoded_bytes: int, pixels: int) -> Texture | tuple[()]:
    """(edges, detail, bits) of a decoded picture: logarithms, so that differences are ratios.

    ``rgb`` uint8 ``[H, W, 3]``; only its middle of ``WINDOW_PX`` squared is read, in its green. ``edges``: the mean
    step across the strongest of the eight possible grids over that of the median one; ``detail``: mean second
    difference over mean step, whatever the contrast; ``bits``: binary logarithm of the file's bits per pixel, of
    ``encoded_bytes`` for ``pixels``. Nothing for a picture that is too small.
    """
    height, width = rgb.shape[:2]
    if min(height, width) < LEAST_PX or pixels < 1 or encoded_bytes < 1:
        return ()
    top, left = max(0, (height - WINDOW_PX) // 2), max(0, (width - WINDOW_PX) // 2)
    green = rgb[top : top + WINDOW_PX, left : left + WINDOW_PX, 1].astype(np.float32)
    down, across = green[1:] - green[:-1], green[:, 1:] - green[:, :-1]
    bends = float(np.abs(down[1:] - down[:-1]).mean() + np.abs(across[:, 1:] - across[:, :-1]).mean())
    steps = np.abs(down).mean(1), np.abs(across).mean(0)
    edges = sum(_edges(profile) for profile in steps) / 2
    detail = float(np.log((bends + _FLOOR) / (steps[0].mean() + steps[1].mean() + _FLOOR)))
    return edges, detail, float(np.log2(8 * encoded_bytes / pixels))


def _edges(profile: NDArray[np.float32]) -> float:
    """How much the strongest grid stands out of ``profile``, the mean step at each line between two pixels."""
    grids = profile[: len(profile) // BLOCK_PX * BLOCK_PX].reshape(-1, BLOCK_PX).mean(0)
    return float(np.log((grids.max() + _FLOOR) / (np.median(grids) + _FLOOR)))
