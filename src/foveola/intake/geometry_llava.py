"""LLaVA-1.5 (one square tile) and LLaVA-NeXT (AnyRes: a thumbnail, and a canvas of tiles that suits the ratio).

Sources: Liu et al. 2023, "Improved Baselines with Visual Instruction Tuning" (arXiv 2310.03744); Liu et al. 2024,
"LLaVA-NeXT: Improved reasoning, OCR, and world knowledge". The same numbers as transformers' ``LlavaImageProcessorPil``
and ``LlavaNextImageProcessorPil`` with ``pack_image_features``.
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


class SquareGeometry(TileGeometry):
    """LLaVA-1.5: the shorter side is scaled to the tile and the middle cut out, or the picture padded to a square."""

    @property
    def max_tiles_of_one(self) -> int:
        """See ``TileGeometry``."""
        return 1

    @property
    def levels(self) -> int:
        """See ``TileGeometry``: there is no coarser way."""
        return 1

    def view(self, size: Size, level: int) -> View:
        """See ``TileGeometry``."""
        tokens = self.side**2
        return View(ImageUse(size, (self.tile, self.tile), tokens), (self.side, self.side), (tokens,), tiles=1)

    def cut(self, rgb: Pixels, view: View) -> NDArray[np.float32]:
        """See ``TileGeometry``."""
        if self._vision.get("pad_to_square"):
            longest = max(rgb.shape[:2])
            rgb = padded(rgb, (longest, longest), [int(255 * mean) for mean in self._vision["image_mean"]])
        height, width = rgb.shape[:2]
        shortest = self._vision.get("shortest_edge")
        if shortest:
            longer = int(shortest * max(height, width) / min(height, width))
            rgb = self.resized(rgb, (shortest, longer) if width <= height else (longer, shortest))
            top, left = (rgb.shape[0] - self.tile) // 2, (rgb.shape[1] - self.tile) // 2
            rgb = rgb[top : top + self.tile, left : left + self.tile]
        else:
            rgb = self.resized(rgb, (self.tile, self.tile))
        return self.normalised(rgb[None])


class AnyResGeometry(TileGeometry):
    """LLaVA-NeXT. Tokens: the thumbnail's, then the canvas row by row without its padding, a separator per row."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """See ``TileGeometry``; ``pinpoints`` are the canvases [height, width] that there are."""
        super().__init__(vision)
        self._pinpoints = [(int(height), int(width)) for height, width in vision["pinpoints"]]
        self._areas = sorted({height * width for height, width in self._pinpoints}, reverse=True)

    @property
    def max_tiles_of_one(self) -> int:
        """See ``TileGeometry``."""
        return 1 + self._areas[0] // self.tile**2

    @property
    def levels(self) -> int:
        """See ``TileGeometry``: level n leaves out the n largest sizes of canvas."""
        return len(self._areas)

    def view(self, size: Size, level: int) -> View:
        """See ``TileGeometry``."""
        canvas = self._canvas(size, level)
        numbers = self._unpadded(size, canvas)
        rows, columns = numbers.shape
        thumbnail = spread((self.side, self.side), (rows, columns))
        reading = np.full((rows, columns + 1), -1, np.int64)
        reading[:, :-1] = np.arange(rows * columns).reshape(rows, columns)
        cells = np.concatenate([thumbnail, reading.reshape(-1)])
        return View(
            use=ImageUse(size, (canvas[1], canvas[0]), len(cells)),
            grid=(rows, columns),
            pieces=(len(cells),),
            cells=cells,
            level=level,
            tiles=1 + canvas[0] * canvas[1] // self.tile**2,
        )

    def cut(self, rgb: Pixels, view: View) -> NDArray[np.float32]:
        """See ``TileGeometry``: the thumbnail first, its ratio given up."""
        canvas = view.use.used
        scaled = self.resized(rgb, _inside((rgb.shape[1], rgb.shape[0]), canvas))
        tiles = self.squares(padded(scaled, canvas, 0))
        thumbnail = self.resized(rgb, (self.tile, self.tile))
        return self.normalised(np.concatenate([thumbnail[None], tiles]))

    def gather(self, view: View, first: int, separators: int) -> NDArray[np.int64]:
        """See ``TileGeometry``."""
        width, height = view.use.used
        numbers = self._unpadded(view.use.original, (height, width)) + first + self.side**2
        line_ends = np.full((len(numbers), 1), separators)
        thumbnail = np.arange(self.side**2) + first
        return np.concatenate([thumbnail, np.concatenate([numbers, line_ends], axis=1).reshape(-1)])

    def _canvas(self, size: Size, level: int) -> tuple[int, int]:
        """(height, width) of the canvas that keeps most of the picture, and of those the one that wastes least."""
        width, height = size

        def merit(canvas: tuple[int, int]) -> tuple[int, int]:
            scale = min(canvas[1] / width, canvas[0] / height)
            kept = min(int(width * scale) * int(height * scale), width * height)
            return kept, kept - canvas[0] * canvas[1]

        allowed = [canvas for canvas in self._pinpoints if canvas[0] * canvas[1] <= self._areas[level]]
        return max(allowed, key=merit)

    def _unpadded(self, size: Size, canvas: tuple[int, int]) -> NDArray[np.int64]:
        """Numbers of the canvas's tokens, without the rows or columns that are padding: int64 [rows, columns]."""
        grid = tiled((canvas[0] // self.tile, canvas[1] // self.tile), self.side)
        rows, columns = grid.shape
        width, height = size
        if width / height > columns / rows:
            margin = (rows - int(round(height * (columns / width), 7))) // 2
            return grid[margin : rows - margin]
        margin = (columns - int(round(width * (rows / height), 7))) // 2
        return grid[:, margin : columns - margin]


def _inside(size: Size, canvas: Size) -> Size:
    """The largest size of the same ratio inside ``canvas``, both (width, height)."""
    by_width, by_height = canvas[0] / size[0], canvas[1] / size[1]
    if by_width < by_height:
        return canvas[0], min(math.ceil(size[1] * by_width), canvas[1])
    return min(math.ceil(size[0] * by_height), canvas[0]), canvas[1]
