"""Token maps: a picture with what was kept of it as it is, and the rest faded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.exchange import Invalid

FADED, PAPER = 0.25, 235
"""How much of a left-out token's contrast is left, and the grey that it fades to."""
EDGE = (214, 60, 40)
"""Colour of the line around what was kept, red, green and blue."""


def token_map(rgb: NDArray[np.uint8], grid: tuple[int, int], kept: Sequence[int]) -> NDArray[np.uint8]:
    """``rgb`` uint8 [H, W, 3] with the tokens not in ``kept`` faded, and a line where kept and left out meet.

    ``grid`` is (rows, columns) of the visual tokens, which are counted row by row. Raises ``Invalid`` for a token that
    there is not.
    """
    rows, columns = grid
    if any(not 0 <= token < rows * columns for token in kept):
        raise Invalid(f"a token beside the grid of {rows} x {columns} was said to be kept; expected 0 to its last one.")
    inside = np.zeros(rows * columns, bool)
    inside[list(kept)] = True
    height, width = rgb.shape[:2]
    row, column = np.arange(height) * rows // height, np.arange(width) * columns // width
    whole = inside.reshape(grid)[row][:, column]
    out = rgb.astype(np.float32)
    out[~whole] = PAPER + (out[~whole] - PAPER) * FADED
    border = np.zeros_like(whole)
    border[1:] |= whole[1:] != whole[:-1]
    border[:, 1:] |= whole[:, 1:] != whole[:, :-1]
    out[border] = EDGE
    return out.round().astype(np.uint8)


def strip(pictures: Sequence[NDArray[np.uint8]], height: int = 224, gap: int = 8) -> Image.Image:
    """Pictures side by side on white, all ``height`` pixels high."""
    scaled = [
        Image.fromarray(picture).resize((max(1, round(picture.shape[1] * height / picture.shape[0])), height))
        for picture in pictures
    ]
    sheet = Image.new("RGB", (sum(one.width for one in scaled) + gap * (len(scaled) - 1), height), "white")
    left = 0
    for one in scaled:
        sheet.paste(one, (left, 0))
        left += one.width + gap
    return sheet
