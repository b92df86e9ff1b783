"""InternVL: the grid of tiles whose ratio is nearest to the picture's, then a thumbnail.

Source: Chen et al. 2024, "How Far Are We to GPT-4V?" (arXiv 2404.16821). The same numbers as transformers'
``GotOcr2ImageProcessorPil`` with ``crop_to_patches``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import ImageUse
from foveola.intake.geometry_tiles import Grid, Pixels, TileGeometry, spread, tiled
from foveola.intake.views import Size, View


class NearestRatioGeometry(TileGeometry):
    """``max_tiles_each`` bounds the grid of one picture; the thumbnail comes on top where there is more than one."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """See ``TileGeometry``."""
        super().__init__(vision)
        self._most = self._whole("max_tiles_each")
        self._least = self._whole("min_tiles_each")
        self._around = (str(vision["before_picture"]), str(vision["after_picture"]))

    @property
    def max_tiles_of_one(self) -> int:
        """See ``TileGeometry``."""
        return self._most + 1

    @property
    def levels(self) -> int:
        """See ``TileGeometry``: every level allows one tile less."""
        return self._most

    def view(self, size: Size, level: int) -> View:
        """See ``TileGeometry``."""
        rows, columns = self._grid(size, self._most - level)
        one = self.side**2
        used = (columns * self.tile, rows * self.tile)
        if rows * columns == 1:
            pieces = (self._around[0], one, self._around[1])
            return View(ImageUse(size, used, one), (self.side, self.side), pieces, level=level, tiles=1)
        over = (rows * self.side, columns * self.side)
        reading = np.empty(over[0] * over[1], np.int64)
        reading[tiled((rows, columns), self.side).reshape(-1)] = np.arange(len(reading))
        cells = np.concatenate([reading, spread((self.side, self.side), over)])
        pieces = (self._around[0], len(cells), self._around[1])
        return View(ImageUse(size, used, len(cells)), over, pieces, cells, level, rows * columns + 1)

    def cut(self, rgb: Pixels, view: View) -> NDArray[np.float32]:
        """See ``TileGeometry``: the thumbnail last."""
        tiles = self.squares(self.resized(rgb, view.use.used))
        if view.tiles > 1:
            tiles = np.concatenate([tiles, self.resized(rgb, (self.tile, self.tile))[None]])
        return self.normalised(tiles)

    def _grid(self, size: Size, most: int) -> Grid:
        """(rows, columns) of nearest ratio; of equals the larger one, while the picture fills half of it."""
        width, height = size
        arrangements = sorted(
            ((columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)),
            key=lambda grid: grid[0] * grid[1],
        )
        best, nearest = (1, 1), float("inf")
        for columns, rows in arrangements:
            if columns * rows < min(self._least, most):
                continue
            off = abs(width / height - columns / rows)
            if off < nearest or (off == nearest and width * height > 0.5 * self.tile**2 * columns * rows):
                best, nearest = (rows, columns), off
        return best
