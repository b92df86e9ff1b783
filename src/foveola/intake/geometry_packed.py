"""The geometries of the Qwen-VL families behind the common interface: patches of pictures of any size in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.intake.budget import fit_pictures
from foveola.intake.geometry import Packed, mrope_positions, pack
from foveola.intake.image import Picture
from foveola.intake.sizes import VisionConfig
from foveola.intake.views import Size, View


class PackedGeometry:
    """Qwen2-VL and Qwen2.5-VL: every picture keeps about its size and ratio, positions have three axes."""

    def __init__(self, vision: Mapping[str, Any]) -> None:
        """``vision`` is that section of model.json. Raises Damaged naming the field."""
        self.vision = VisionConfig.from_model(vision)

    @property
    def enough_pixels(self) -> int:
        """See ``Geometry``: twice what the largest picture keeps."""
        return 2 * self.vision.max_pixels

    def fit(self, sizes: Sequence[Size], *, room_tokens: int | None = None) -> tuple[View, ...]:
        """See ``Geometry``."""
        factor = self.vision.factor
        return tuple(
            View(use, (use.used[1] // factor, use.used[0] // factor), (use.tokens,))
            for use in fit_pictures(sizes, self.vision, room_tokens=room_tokens)
        )

    def pack(self, pictures: Sequence[Picture], views: Sequence[View]) -> Packed:
        """See ``Geometry``."""
        return pack(pictures, self.vision, [view.use for view in views])

    def positions(
        self, ids: NDArray[np.int64], views: Sequence[View], *, image_token_id: int
    ) -> tuple[NDArray[np.int64], int]:
        """See ``Geometry``: M-RoPE, int64 [3, S]."""
        merge = self.vision.merge_size
        grids = [(rows * merge, columns * merge) for rows, columns in (view.grid for view in views)]
        return mrope_positions(ids, grids, image_token_id=image_token_id, merge_size=merge)


class SizedGeometry(PackedGeometry):
    """Qwen3-VL: the tower also needs to know how large each patch's picture is, to place its learnt positions."""

    def pack(self, pictures: Sequence[Picture], views: Sequence[View]) -> Packed:
        """See ``Geometry``; ``sizes`` int64 [N, 2] are rows and columns, in patches, of each patch's picture."""
        packed = super().pack(pictures, views)
        grids = np.asarray(packed.grids, dtype=np.int64).reshape(-1, 2)
        return replace(packed, inputs=(*packed.inputs, "sizes"), others={"sizes": grids[packed.segment_ids]})
