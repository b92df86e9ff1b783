"""What the geometries of square tiles share: one tower input per tile, coarser rules where a prompt has no room.

Each family's own rule, how a picture is cut and what stands around its tokens, is a subclass in a file of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.exchange import BadImage, Damaged, OverBudget
from foveola.intake.geometry import Packed, normalised_levels
from foveola.intake.image import Picture
from foveola.intake.sizes import MAX_RATIO, RESAMPLING
from foveola.intake.views import Size, View, counted_positions

Pixels = NDArray[np.uint8]  # [H, W, 3]
Grid = tuple[int, int]  # rows, columns


class TileGeometry(ABC):
    """Pictures as square tiles of ``tile`` pixels; each gives ``side`` x ``side`` visual tokens."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """``vision`` is that section of model.json. Raises Damaged naming the field."""
        self._vision = vision
        self.tile = self._whole("tile")
        self.side = self.tile // (self._whole("patch_size") * self._whole("merge_size"))
        self.max_tiles = self._whole("max_tiles")
        for key in ("image_mean", "image_std"):
            if len(vision.get(key) or ()) != 3:
                raise Damaged(f"model.json: vision.{key} is a list of three numbers; compile the bundle anew.")
        if vision.get("resample") not in RESAMPLING:
            raise Damaged(f"model.json: vision.resample is one of {', '.join(RESAMPLING)}.")
        self.resample = RESAMPLING[vision["resample"]]
        self._levels = self._normalised_levels()

    @property
    def enough_pixels(self) -> int:
        """See ``Geometry``: eight times what all tiles of a picture hold."""
        return 8 * self.max_tiles_of_one * self.tile**2

    @property
    @abstractmethod
    def max_tiles_of_one(self) -> int:
        """The most tiles that one picture is cut into."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """How many rules of cutting there are; 0 is the model's own, each higher one is coarser."""

    @abstractmethod
    def view(self, size: Size, level: int) -> View:
        """How a picture of this size is shown by the rule ``level``."""

    @abstractmethod
    def cut(self, rgb: Pixels, view: View) -> NDArray[np.float32]:
        """The tiles of one picture, in the order of their features: float32 [n, 3, tile, tile]."""

    def gather(self, view: View, first: int, separators: int) -> NDArray[np.int64] | None:
        """Which rows of the tower's output are the features of ``view``, for families that rearrange them.

        ``first`` is the row where the picture's first tile begins, ``separators`` where the learnt rows do, after
        all tiles. None: the features are the rows as they come.
        """
        return None

    def fit(self, sizes: Sequence[Size], *, room_tokens: int | None = None) -> tuple[View, ...]:
        """See ``Geometry``: all pictures are cut by the finest rule by which they fit together."""
        for width, height in sizes:
            if max(width, height) / min(width, height) > MAX_RATIO:
                raise BadImage(
                    f"The picture is {width} x {height} pixels; one side may be at most {MAX_RATIO} times the other. "
                    "Crop it, or cut it into several pictures."
                )
        views: tuple[View, ...] = ()
        for level in range(self.levels):
            views = tuple(self.view(size, level) for size in sizes)
            fits = room_tokens is None or sum(view.length for view in views) <= room_tokens
            if fits and sum(view.tiles for view in views) <= self.max_tiles:
                return views
        least, tiles = sum(view.length for view in views), sum(view.tiles for view in views)
        plural = "picture needs" if len(sizes) == 1 else "pictures need"
        room = f"room for {max(room_tokens, 0)} tokens and " if room_tokens is not None else ""
        raise OverBudget(
            f"{len(sizes)} {plural} at least {least} tokens and {tiles} tiles, and there is {room}{self.max_tiles} "
            "tiles. Send fewer pictures, shorten the text, or lower max_tokens.",
            field="image",
        )

    def pack(self, pictures: Sequence[Picture], views: Sequence[View]) -> Packed:
        """See ``Geometry``."""
        return self._packed([self.cut(picture.rgb, view) for picture, view in zip(pictures, views, strict=True)], views)

    def _packed(self, cut: Sequence[NDArray[np.float32]], views: Sequence[View]) -> Packed:
        counts = [len(tiles) for tiles in cut]
        empty = np.empty((0, 3, self.tile, self.tile), np.float32)
        gathered = self.gathered(views, counts)
        return Packed(
            pixel_values=np.concatenate([empty, *cut]),
            position_ids=np.empty((0, 2), np.int64),
            segment_ids=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
            grids=tuple(view.grid for view in views),
            images=tuple(view.use for view in views),
            inputs=("pixel_values",) if gathered is None else ("pixel_values", "gather"),
            others={} if gathered is None else {"gather": gathered},
            apart=()
            if gathered is None or len(views) < 2
            else tuple(self._packed([tiles], [view]) for tiles, view in zip(cut, views, strict=True)),
        )

    def positions(
        self, ids: NDArray[np.int64], views: Sequence[View], *, image_token_id: int
    ) -> tuple[NDArray[np.int64], int]:
        """See ``Geometry``: tokens are counted, int64 [1, S]."""
        return counted_positions(ids)

    def gathered(self, views: Sequence[View], counts: Sequence[int]) -> NDArray[np.int64] | None:
        """``gather`` of all pictures together; ``counts`` are their tiles."""
        separators = sum(counts) * self.side**2
        rows, first = [np.empty(0, np.int64)], 0
        for view, count in zip(views, counts, strict=True):
            own = self.gather(view, first, separators)
            if own is None:
                return None
            rows.append(own)
            first += count * self.side**2
        return np.concatenate(rows)

    def _normalised_levels(self) -> NDArray[np.float32]:
        return normalised_levels(self._vision["image_mean"], self._vision["image_std"])

    def normalised(self, rgb: Pixels) -> NDArray[np.float32]:
        """uint8 [..., H, W, 3] -> float32 [..., 3, H, W]."""
        out = np.empty((*rgb.shape[:-3], 3, *rgb.shape[-3:-1]), np.float32)
        for channel in range(3):
            out[..., channel, :, :] = self._levels[channel][rgb[..., channel]]
        return out

    def resized(self, rgb: Pixels, size: Size) -> Pixels:
        """``rgb`` at ``size`` = (width, height) by the model's resampling."""
        if rgb.shape[:2] == (size[1], size[0]):
            return rgb
        return np.asarray(Image.fromarray(rgb).resize(size, resample=self.resample))

    def squares(self, rgb: Pixels) -> Pixels:
        """A canvas of whole tiles -> uint8 [rows*columns, tile, tile, 3], row by row."""
        rows, columns = rgb.shape[0] // self.tile, rgb.shape[1] // self.tile
        blocks = rgb.reshape(rows, self.tile, columns, self.tile, 3)
        return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, self.tile, self.tile, 3)

    def _whole(self, key: str) -> int:
        value = self._vision.get(key)
        if type(value) is not int or value < 1:
            raise Damaged(f"model.json: vision.{key} is a whole number of at least 1; compile the bundle anew.")
        return value


def spread(grid: Grid, over: Grid) -> NDArray[np.int64]:
    """For each cell of ``grid``, row by row, the cell of ``over`` in which its centre lies: int64 [rows*columns].

    Both cover the same picture.
    """
    rows = ((np.arange(grid[0]) + 0.5) / grid[0] * over[0]).astype(np.int64)
    columns = ((np.arange(grid[1]) + 0.5) / grid[1] * over[1]).astype(np.int64)
    return (rows[:, None] * over[1] + columns).reshape(-1)


def tiled(grid: Grid, side: int) -> NDArray[np.int64]:
    """Numbers of the tokens of a canvas of ``grid`` tiles in reading order: int64 [rows*side, columns*side].

    Tokens are numbered tile by tile; entry (i, j) is the number of the one at row i, column j of the canvas.
    """
    numbers = np.arange(grid[0] * grid[1] * side * side, dtype=np.int64).reshape(*grid, side, side)
    return numbers.transpose(0, 2, 1, 3).reshape(grid[0] * side, grid[1] * side)


def padded(rgb: Pixels, size: Size, fill: int | Sequence[int]) -> Pixels:
    """``rgb`` in the middle of a canvas of ``size`` = (width, height) filled with ``fill``; odd pixels go after."""
    canvas = np.empty((size[1], size[0], 3), np.uint8)
    canvas[:] = fill
    top, left = (size[1] - rgb.shape[0]) // 2, (size[0] - rgb.shape[1]) // 2
    canvas[top : top + rgb.shape[0], left : left + rgb.shape[1]] = rgb
    return canvas
