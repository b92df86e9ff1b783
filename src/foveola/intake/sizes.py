"""What a model wants of a picture's size, and Qwen2-VL's rule for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from foveola.exchange import BadImage, Damaged

MAX_RATIO = 200
"""Longer side over shorter side; the bound of Qwen2-VL's own smart_resize."""

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
"""Resampling filters by the name that model.json gives them."""


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """How a model wants its pictures: the section ``vision`` of a bundle's model.json.

    ``min_pixels`` and ``max_pixels`` bound the area of one resized picture; ``max_patches`` bounds the patches of
    all pictures of a request (the vision graph's mask is quadratic in it). An elongated picture is shown in at most
    ``max_tiles`` parts (``tiling.py``); 1 is whole.
    """

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    max_pixels: int
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]
    resample: str
    max_patches: int
    max_tiles: int = 4

    @property
    def factor(self) -> int:
        """Side in pixels of the square that becomes one visual token; sides of resized pictures are multiples."""
        return self.patch_size * self.merge_size

    @classmethod
    def from_model(cls, vision: Mapping[str, Any]) -> VisionConfig:
        """The configuration in the section ``vision`` of model.json. Raises Damaged naming the field."""
        sizes = ("patch_size", "merge_size", "temporal_patch_size", "min_pixels", "max_pixels", "max_patches")
        for key in sizes:
            if type(vision.get(key)) is not int or vision[key] < 1:
                raise Damaged(f"model.json: vision.{key} is a whole number of at least 1; compile the bundle anew.")
        for key in ("image_mean", "image_std"):
            values = vision.get(key)
            if not isinstance(values, (list, tuple)) or len(values) != 3 or not all(_is_finite(v) for v in values):
                raise Damaged(f"model.json: vision.{key} is a list of three numbers; compile the bundle anew.")
        if 0 in vision["image_std"]:
            raise Damaged("model.json: vision.image_std divides the pixels and must not hold 0.")
        if vision.get("resample") not in RESAMPLING:
            raise Damaged(f"model.json: vision.resample is one of {', '.join(RESAMPLING)}.")
        if vision["min_pixels"] > vision["max_pixels"]:
            raise Damaged("model.json: vision.min_pixels is greater than vision.max_pixels.")
        max_tiles = vision.get("max_tiles", 4)
        if type(max_tiles) is not int or max_tiles < 1:
            raise Damaged("model.json: vision.max_tiles is a whole number of at least 1; compile the bundle anew.")
        return cls(
            **{key: vision[key] for key in sizes},
            max_tiles=max_tiles,
            image_mean=_three(vision["image_mean"]),
            image_std=_three(vision["image_std"]),
            resample=vision["resample"],
        )


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) of the resized picture: multiples of ``factor``, area within the bounds, ratio about kept.

    Qwen2-VL's rule, quirks included: a very long picture may exceed ``max_pixels``, since no side falls below
    ``factor``. Raises BadImage for a ratio above 200.
    """
    if max(height, width) / min(height, width) > MAX_RATIO:
        raise BadImage(
            f"The picture is {width} x {height} pixels; one side may be at most {MAX_RATIO} times the other. "
            "Crop it, or cut it into several pictures."
        )
    # round() is Python's, half to even, as in the reference.
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    if new_height * new_width > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_height, new_width


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    first, second, third = values
    return float(first), float(second), float(third)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
