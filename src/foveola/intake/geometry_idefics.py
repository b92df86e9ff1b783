"""Idefics3 and SmolVLM: a canvas of whole tiles, each named by row and column in the prompt, then the whole picture.

Sources: Laurençon et al. 2024, "Building and better understanding vision-language models" (arXiv 2408.12637);
Marafioti et al. 2025, "SmolVLM" (arXiv 2504.05299). The same numbers as transformers' ``Idefics3ImageProcessorPil`` and
``Idefics3Processor``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import ImageUse
from foveola.intake.geometry_tiles import Grid, Pixels, TileGeometry, spread, tiled
from foveola.intake.views import Size, View

_MAX_SIDE = 4096  # of a scaled picture, whatever the checkpoint says


class NamedTilesGeometry(TileGeometry):
    """``longest_edge`` bounds the canvas; markers around the tiles come from the sections ``vision`` and ``prompt``."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """See ``TileGeometry``."""
        super().__init__(vision)
        self._edge = self._whole("longest_edge")
        self._border = str(vision["tile_border"])
        self._whole_picture = str(vision["whole_picture"])
        self._split = bool(vision.get("split", True))

    @property
    def max_tiles_of_one(self) -> int:
        """See ``TileGeometry``."""
        return 1 + math.ceil(self._edge / self.tile) ** 2 if self._split else 1

    @property
    def levels(self) -> int:
        """See ``TileGeometry``: every level takes one tile off the longer side; at the last nothing is cut."""
        return math.ceil(self._edge / self.tile) if self._split else 1

    def view(self, size: Size, level: int) -> View:
        """See ``TileGeometry``."""
        canvas = self._canvas(size, level)
        grid = (canvas[1] // self.tile, canvas[0] // self.tile)
        one = self.side**2
        if grid == (1, 1):
            pieces: tuple[int | str, ...] = (self._border + self._whole_picture, one, self._border)
            return View(ImageUse(size, canvas, one), (self.side, self.side), pieces, level=level, tiles=1)
        over = (grid[0] * self.side, grid[1] * self.side)
        reading = np.empty(over[0] * over[1], np.int64)
        reading[tiled(grid, self.side).reshape(-1)] = np.arange(len(reading))
        cells = np.concatenate([reading, spread((self.side, self.side), over)])
        use = ImageUse(size, canvas, len(cells))
        return View(use, over, self._pieces(grid, one), cells, level, grid[0] * grid[1] + 1)

    def cut(self, rgb: Pixels, view: View) -> NDArray[np.float32]:
        """See ``TileGeometry``: the whole picture last."""
        height, width = rgb.shape[:2]
        rgb = self.resized(rgb, self._scaled((width, height), view.level))
        if self._split:
            rgb = self.resized(rgb, view.use.used)
        whole = self.resized(rgb, (self.tile, self.tile))[None]
        if view.tiles == 1:
            return self.normalised(whole)
        return self.normalised(np.concatenate([self.squares(rgb), whole]))

    def _pieces(self, grid: Grid, one: int) -> tuple[int | str, ...]:
        pieces: list[int | str] = []
        break_before = ""
        for row in range(grid[0]):
            for column in range(grid[1]):
                pieces += [f"{break_before}{self._border}<row_{row + 1}_col_{column + 1}>", one]
                break_before = ""
            break_before = "\n"
        return (*pieces, f"\n\n{self._border}{self._whole_picture}", one, self._border)

    def _scaled(self, size: Size, level: int) -> Size:
        """The longer side becomes ``longest_edge``, less a tile per level; the shorter one stays even."""
        width, height = size
        edge = self._edge - level * self.tile if level else self._edge
        edge = max(edge, min(self.tile, self._edge))
        ratio = width / height
        if width >= height:
            width, height = edge, int(edge / ratio)
            height += height % 2
        else:
            width, height = int(edge * ratio), edge
            width += width % 2
        width, height = max(width, 1), max(height, 1)
        if max(width, height) > _MAX_SIDE:
            ratio = width / height
            width, height = (
                (_MAX_SIDE, max(int(_MAX_SIDE / ratio), 1))
                if width >= height
                else (max(int(_MAX_SIDE * ratio), 1), _MAX_SIDE)
            )
        return width, height

    def _canvas(self, size: Size, level: int) -> Size:
        """(width, height) in whole tiles around the scaled picture."""
        if not self._split:
            return self.tile, self.tile
        width, height = self._scaled(size, level)
        ratio = width / height
        if width >= height:
            width = self._up(width)
            return width, self._up(int(width / ratio))
        height = self._up(height)
        return self._up(int(height * ratio)), height

    def _up(self, length: int) -> int:
        return max(1, math.ceil(length / self.tile)) * self.tile
