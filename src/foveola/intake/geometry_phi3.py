"""Phi-3-vision and Phi-3.5-vision: a canvas as wide as the crops allow, padded with white, and the whole picture.

Source: Abdin et al. 2024, "Phi-3 Technical Report" (arXiv 2404.14219), and the model's published preprocessing
(``HD_transform``): tall pictures are turned on their side, scaled, padded and turned back; the whole picture is the
padded canvas, scaled after normalisation by cubic convolution (a = -0.75) without smoothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import ImageUse
from foveola.intake.geometry_tiles import Pixels, TileGeometry, padded, spread, tiled
from foveola.intake.views import Size, View

_WHITE = 255
_KERNEL = -0.75


class TurnedCanvasGeometry(TileGeometry):
    """``num_crops`` bounds the tiles. Tokens: the canvas row by row with a separator after each, another one, then the
    whole picture in the same way."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """See ``TileGeometry``."""
        super().__init__(vision)
        self._crops = self._whole("num_crops")

    @property
    def max_tiles_of_one(self) -> int:
        """See ``TileGeometry``."""
        return self._crops + 1

    @property
    def levels(self) -> int:
        """See ``TileGeometry``: every level allows one crop less."""
        return self._crops

    def view(self, size: Size, level: int) -> View:
        """See ``TileGeometry``."""
        width, height = self._canvas(size, level)
        grid = (height // self.tile, width // self.tile)
        rows, columns = grid[0] * self.side, grid[1] * self.side
        canvas = np.full((rows, columns + 1), -1, np.int64)
        canvas[:, :-1] = np.arange(rows * columns).reshape(rows, columns)
        whole = np.full((self.side, self.side + 1), -1, np.int64)
        whole[:, :-1] = spread((self.side, self.side), (rows, columns)).reshape(self.side, self.side)
        cells = np.concatenate([canvas.reshape(-1), [-1], whole.reshape(-1)])
        use = ImageUse(size, (width, height), len(cells))
        return View(use, (rows, columns), (len(cells),), cells, level, 1 + grid[0] * grid[1])

    def cut(self, rgb: Pixels, view: View) -> NDArray[np.float32]:
        """See ``TileGeometry``: the whole picture first."""
        width, height = view.use.used
        tall = rgb.shape[1] < rgb.shape[0]
        turned = np.ascontiguousarray(rgb.transpose(1, 0, 2)) if tall else rgb
        across, down = (height, width) if tall else (width, height)
        ratio = turned.shape[1] / turned.shape[0]
        scaled = self.resized(turned, (across, max(1, int(across / ratio))))
        canvas = padded(scaled, (across, down), _WHITE)
        if tall:
            canvas = canvas.transpose(1, 0, 2)
        tiles = self.normalised(self.squares(np.ascontiguousarray(canvas)))
        whole = self.normalised(np.ascontiguousarray(canvas)[None])[0]
        by_rows, by_columns = cubic(height, self.tile), cubic(width, self.tile)
        small = np.matmul(np.matmul(by_rows, whole), by_columns.T)
        return np.concatenate([small[None], tiles]).astype(np.float32)

    def gather(self, view: View, first: int, separators: int) -> NDArray[np.int64]:
        """See ``TileGeometry``; the two separators end a row, and part canvas and whole picture."""
        width, height = view.use.used
        grid = (height // self.tile, width // self.tile)
        one = self.side**2
        whole = np.arange(first, first + one).reshape(self.side, self.side)
        canvas = tiled(grid, self.side) + first + one
        return np.concatenate([_lines(canvas, separators), [separators + 1], _lines(whole, separators)])

    def _normalised_levels(self) -> NDArray[np.float32]:
        levels = np.arange(256, dtype=np.float32) / np.float32(255)
        mean = np.asarray(self._vision["image_mean"], np.float32)[:, None]
        levels_3 = (levels[None] - mean) / np.asarray(self._vision["image_std"], np.float32)[:, None]
        return levels_3.astype(np.float32)

    def _canvas(self, size: Size, level: int) -> Size:
        """(width, height) in whole tiles: as many along the longer side as all crops together allow."""
        longer, shorter = max(size), min(size)
        ratio = longer / shorter
        most = self._crops - level
        along = 1
        while (along + 1) * math.ceil((along + 1) / ratio) <= most:
            along += 1
        across = along * self.tile
        down = math.ceil(max(1, int(across / ratio)) / self.tile) * self.tile
        return (across, down) if size[0] >= size[1] else (down, across)


def _lines(numbers: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    return np.concatenate([numbers, np.full((len(numbers), 1), end)], axis=1).reshape(-1)


def cubic(length: int, wanted: int) -> NDArray[np.float32]:
    """The matrix [wanted, length] of cubic convolution as in torch's bicubic ``interpolate``: borders repeat."""
    scale = length / wanted
    centres = (np.arange(wanted) + 0.5) * scale - 0.5
    first = np.floor(centres).astype(np.int64)
    matrix = np.zeros((wanted, length), np.float32)
    for tap in range(-1, 3):
        away = np.abs(centres - (first + tap))
        near = ((_KERNEL + 2) * away - (_KERNEL + 3)) * away**2 + 1
        far = ((_KERNEL * away - 5 * _KERNEL) * away + 8 * _KERNEL) * away - 4 * _KERNEL
        np.add.at(matrix, (np.arange(wanted), np.clip(first + tap, 0, length - 1)), np.where(away <= 1, near, far))
    return matrix
