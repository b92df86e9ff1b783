"""Elongated pictures as tiles: more detail reaches the model, and every token stays where it is in the picture.

A picture that is more than ``RATIO`` times as long as wide, and larger than the model takes at once, would be shrunk
until little is left of its short side. Instead it is shown twice: the whole as a *thumbnail*, the size that it would
have got, and then larger, cut along its long side into *tiles* of which each is as large as the model takes at once.

    thumbnail              tiles, each through the vision graph on its own
    +-----------------+    +----------+----------+----------+
    | whole, small    |    | 0        | 1        | 2        |
    +-----------------+    +----------+----------+----------+

The decoder reads them as two pictures in a row. All tiles together are the second one: a token's row and column are
those of its place in the whole, not in its tile, so that two tiles side by side read like one picture. Where the prompt
has no room for so many tokens, there are fewer tiles, down to none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import ImageUse
from foveola.intake.sizes import MAX_RATIO, VisionConfig, smart_resize

RATIO = 1.8
"""Longer side over shorter side; above, a picture is tiled."""

Size = tuple[int, int]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of the resized whole."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one picture is cut. Sizes are (width, height) in pixels, multiples of ``factor`` (one visual token)."""

    thumbnail: Size
    whole: Size
    tiles: tuple[Box, ...]
    factor: int

    @property
    def thumbnail_grid(self) -> tuple[int, int]:
        """Rows and columns of the thumbnail's tokens."""
        return self.thumbnail[1] // self.factor, self.thumbnail[0] // self.factor

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the tokens of all tiles together."""
        return self.whole[1] // self.factor, self.whole[0] // self.factor

    @property
    def counts(self) -> tuple[int, ...]:
        """Tokens of the thumbnail and of each tile, in the order of the prompt."""
        area = self.factor**2
        tiles = ((right - left) * (bottom - top) // area for left, top, right, bottom in self.tiles)
        return (math.prod(self.thumbnail_grid), *tiles)

    def places(self) -> NDArray[np.int64]:
        """Which cell of ``grid`` each token of the tiles is, in the order of the prompt: int64 [tokens]."""
        cells = np.arange(math.prod(self.grid)).reshape(self.grid)
        f = self.factor
        tiles = (cells[top // f : bottom // f, left // f : right // f] for left, top, right, bottom in self.tiles)
        return np.concatenate([tile.reshape(-1) for tile in tiles])

    def cells(self) -> NDArray[np.int64]:
        """Which cell of ``grid`` each token lies on, those of the thumbnail (its middle) included: int64 [tokens]."""
        rows, columns = self.grid
        small_rows, small_columns = self.thumbnail_grid
        row = ((np.arange(small_rows) + 0.5) * rows / small_rows).astype(np.int64)
        column = ((np.arange(small_columns) + 0.5) * columns / small_columns).astype(np.int64)
        return np.concatenate([(row[:, None] * columns + column).reshape(-1), self.places()])

    def use(self, original: Size) -> ImageUse:
        """What is told of the picture."""
        return ImageUse(original, self.whole, sum(self.counts), tiles=len(self.tiles), thumbnail=self.thumbnail)


def tiling(size: Size, vision: VisionConfig, max_pixels: int, most: int) -> Tiling | None:
    """How a picture of ``size`` = (width, height) is cut into at most ``most`` tiles of at most ``max_pixels``.

    None where it is not: it is not elongated, is no larger than the model takes at once, or would have one tile.
    """
    width, height = size
    longer, shorter = max(size), min(size)
    if most < 2 or longer <= RATIO * shorter or longer > MAX_RATIO * shorter:
        return None
    wanted = math.ceil(width * height / max_pixels)
    if wanted < 2:
        return None
    factor = vision.factor
    thumb_height, thumb_width = smart_resize(height, width, factor, vision.min_pixels, max_pixels)
    for count in range(min(wanted, most), 1, -1):
        whole_height, whole_width = smart_resize(height, width, factor, vision.min_pixels, count * max_pixels)
        if whole_height * whole_width <= thumb_height * thumb_width:
            continue  # so thin that more room makes it no larger
        boxes = _cut(whole_width, whole_height, count, factor)
        if len(boxes) > 1:
            return Tiling((thumb_width, thumb_height), (whole_width, whole_height), boxes, factor)
    return None


def _cut(width: int, height: int, count: int, factor: int) -> tuple[Box, ...]:
    """``count`` parts along the longer side, as equal as multiples of ``factor`` allow."""
    length = max(width, height) // factor
    ends = [round(length * (index + 1) / count) * factor for index in range(min(count, length))]
    starts = [0, *ends[:-1]]
    if width >= height:
        return tuple((start, 0, end, height) for start, end in zip(starts, ends, strict=True))
    return tuple((0, start, width, end) for start, end in zip(starts, ends, strict=True))
