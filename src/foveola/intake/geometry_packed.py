"""The geometries of the Qwen-VL families behind the common interface: patches of pictures of any size in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.exchange import ImageUse
from foveola.intake.budget import fit_pictures
from foveola.intake.geometry import Packed, mrope_positions, pack
from foveola.intake.image import Picture
from foveola.intake.sizes import RESAMPLING, VisionConfig, smart_resize
from foveola.intake.tiling import tiling
from foveola.intake.views import Size, View


class PackedGeometry:
    """Qwen2-VL and Qwen2.5-VL: every picture keeps about its size and ratio, positions have three axes."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """``vision`` is that section of model.json. Raises Damaged naming the field."""
        self.vision = VisionConfig.from_model(vision)

    @property
    def enough_pixels(self) -> int:
        """See ``Geometry``: twice what the largest picture keeps."""
        return 2 * self.vision.max_pixels * self.vision.max_tiles

    def fit(self, sizes: Sequence[Size], *, room_tokens: int | None = None) -> tuple[View, ...]:
        """See ``Geometry``. What is too much loses its tiles first, then its size."""
        most = self.vision.max_patches // self.vision.merge_size**2
        if room_tokens is not None:
            most = min(most, room_tokens)
        unbounded: list[int] = []
        for tiles in range(self.vision.max_tiles, 0, -1):
            views = [self._view(size, tiles) for size in sizes]
            unbounded = unbounded or [view.use.tokens for view in views]
            if sum(view.use.tokens for view in views) <= most:
                break
        else:
            views = [self._whole(use) for use in fit_pictures(sizes, self.vision, room_tokens=room_tokens)]
        told = zip(views, unbounded, strict=True)
        return tuple(replace(view, use=replace(view.use, unbounded=tokens)) for view, tokens in told)

    def pack(self, pictures: Sequence[Picture], views: Sequence[View]) -> Packed:
        """See ``Geometry``. Every tile is a segment of its own."""
        parts = [part for picture, view in zip(pictures, views, strict=True) for part in self._parts(picture, view)]
        packed = pack([picture for picture, _ in parts], self.vision, [use for _, use in parts])
        return replace(packed, images=tuple(view.use for view in views))

    def _view(self, size: Size, most_tiles: int) -> View:
        cut = tiling(size, self.vision, self.vision.max_pixels, most_tiles)
        if cut is None:
            width, height = size
            bounds = self.vision.min_pixels, self.vision.max_pixels
            used_height, used_width = smart_resize(height, width, self.vision.factor, *bounds)
            tokens = (used_height // self.vision.factor) * (used_width // self.vision.factor)
            return self._whole(ImageUse(size, (used_width, used_height), tokens))
        use = cut.use(size)
        return View(use, cut.grid, (use.tokens,), cut.cells(), tiles=len(cut.tiles), tiling=cut)

    def _whole(self, use: ImageUse) -> View:
        factor = self.vision.factor
        return View(use, (use.used[1] // factor, use.used[0] // factor), (use.tokens,))

    def _parts(self, picture: Picture, view: View) -> list[tuple[Picture, ImageUse]]:
        """What goes through the vision graph apart: the picture, or its thumbnail and its tiles."""
        cut = view.tiling
        if cut is None:
            return [(picture, view.use)]
        resample = RESAMPLING[self.vision.resample]
        whole = np.asarray(Image.fromarray(picture.rgb).resize(cut.whole, resample=resample))
        parts = [(picture, ImageUse(picture.original, cut.thumbnail, cut.counts[0]))]
        for (left, top, right, bottom), tokens in zip(cut.tiles, cut.counts[1:], strict=True):
            size = (right - left, bottom - top)
            tile = Picture(whole[top:bottom, left:right], size, picture.format)
            parts.append((tile, ImageUse(size, size, tokens)))
        return parts

    def positions(
        self, ids: NDArray[np.int64], views: Sequence[View], *, image_token_id: int
    ) -> tuple[NDArray[np.int64], int]:
        """See ``Geometry``: M-RoPE, int64 [3, S]. Thumbnail and tiles are two pictures in a row."""
        merge = self.vision.merge_size
        shown = [grid for view in views for grid in (*_thumbnail(view), view.grid)]
        grids = [(rows * merge, columns * merge) for rows, columns in shown]
        positions, following = mrope_positions(ids, grids, image_token_id=image_token_id, merge_size=merge)
        visual = np.flatnonzero(np.asarray(ids) == image_token_id)
        taken = 0
        for view in views:
            if view.tiling is not None:  # written row by row of the whole; they stand tile by tile
                own = visual[taken + view.parts[0] : taken + view.use.tokens]
                positions[:, own] = positions[:, own[view.tiling.places()]]
            taken += view.use.tokens
        return positions, following


def _thumbnail(view: View) -> tuple[tuple[int, int], ...]:
    return () if view.tiling is None else (view.tiling.thumbnail_grid,)


class SizedGeometry(PackedGeometry):
    """Qwen3-VL: the tower also needs to know how large each patch's picture is, to place its learnt positions."""

    def pack(self, pictures: Sequence[Picture], views: Sequence[View]) -> Packed:
        """See ``Geometry``; ``sizes`` int64 [N, 2] are rows and columns, in patches, of each patch's picture."""
        packed = super().pack(pictures, views)
        grids = np.asarray(packed.grids, dtype=np.int64).reshape(-1, 2)
        return replace(packed, inputs=(*packed.inputs, "sizes"), others={"sizes": grids[packed.segment_ids]})
