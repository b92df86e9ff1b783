"""Patch geometry of the Qwen2-VL family in numpy: sizes, patches in merge-block order, and M-RoPE positions.

The same numbers as transformers' ``Qwen2VLImageProcessorPil``, ``get_vision_position_ids`` and ``get_rope_index``,
without torch; the tests compare them element by element. Calibration, engine and learning all use this file.

Letters: N patches of a request, P patch side in pixels, M merge side in patches (M x M patches become one visual
token), S tokens of a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.exchange import ImageUse
from foveola.intake.budget import fit_pictures
from foveola.intake.image import Picture
from foveola.intake.sizes import RESAMPLING, VisionConfig, smart_resize

__all__ = [
    "Packed",
    "VisionConfig",
    "mrope_positions",
    "normalised_levels",
    "pack",
    "patch_positions",
    "patchify",
    "smart_resize",
]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """All pictures of a request as the vision graph takes them.

    As one row of patches in merge-block order: ``pixel_values`` float32 [N, 3*T*P*P] (channel, then temporal copy,
    then rows); ``position_ids`` int64 [N, 2] (row and column of each patch in its picture); ``segment_ids`` int64 [N]
    (index of the picture). As square tiles: ``pixel_values`` float32 [N, 3, side, side], ``position_ids`` empty,
    ``segment_ids`` the picture of each tile. ``grids`` are (rows, columns) in patches, ``images`` what became of each
    picture. ``inputs`` names the inputs of the graph, ``others`` holds those beyond the three arrays. ``apart`` are the
    pictures one by one, where that is more than a stretch of each array (rows counted through all pictures).
    """

    pixel_values: NDArray[np.float32]
    position_ids: NDArray[np.int64]
    segment_ids: NDArray[np.int64]
    grids: tuple[tuple[int, int], ...]
    images: tuple[ImageUse, ...]
    inputs: tuple[str, ...] = ("pixel_values", "position_ids", "segment_ids")
    others: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    apart: tuple[Packed, ...] = ()

    @property
    def patches(self) -> int:
        """About how many patches the tower works on: what its memory goes by."""
        return len(self.pixel_values) if self.pixel_values.ndim == 2 else self.pixel_values.size // 588

    def feeds(self) -> dict[str, NDArray[np.generic]]:
        """Name -> array, for every input of the vision graph."""
        return {name: self.others[name] if name in self.others else getattr(self, name) for name in self.inputs}


def patchify(rgb: NDArray[np.uint8], size: tuple[int, int], vision: VisionConfig) -> NDArray[np.float32]:
    """Resize ``rgb`` uint8 [H, W, 3] to ``size`` = (width, height), normalise, cut: float32 [N, 3*T*P*P].

    ``size`` holds multiples of ``vision.factor``. Patches come in merge-block order: all patches of one visual
    token one after the other.
    """
    p, m, t = vision.patch_size, vision.merge_size, vision.temporal_patch_size
    if rgb.shape[:2] != (size[1], size[0]):
        rgb = np.asarray(Image.fromarray(rgb).resize(size, resample=RESAMPLING[vision.resample]))
    rows, columns = size[1] // (p * m), size[0] // (p * m)
    blocks = rgb.reshape(rows, m, p, columns, m, p, 3)
    # block row, block column, patch row and column in the block, channel, pixel row, pixel column
    patches = blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns * m * m, 3, 1, p * p)
    out = np.empty((rows * columns * m * m, 3, t, p * p), dtype=np.float32)
    for channel, table in enumerate(normalised_levels(vision.image_mean, vision.image_std)):
        out[:, channel] = table[patches[:, channel]]
    return out.reshape(len(out), -1)


def pack(
    pictures: Sequence[Picture], vision: VisionConfig | Mapping[str, Any], images: Sequence[ImageUse] | None = None
) -> Packed:
    """Resize, normalise and pack ``pictures`` for the vision graph.

    ``vision`` may be the section of model.json itself. ``images`` says which size each picture gets, as
    ``fit_pictures`` computed it (the default: with no bound but the model's own). Raises BadImage for a picture too
    long, OverBudget for more than the model takes at once.
    """
    config = vision if isinstance(vision, VisionConfig) else VisionConfig.from_model(vision)
    uses = tuple(images) if images is not None else fit_pictures([picture.original for picture in pictures], config)
    if not pictures:
        empty = np.empty((0, 3 * config.temporal_patch_size * config.patch_size**2), dtype=np.float32)
        return Packed(empty, np.empty((0, 2), np.int64), np.empty(0, np.int64), (), ())
    values = [patchify(picture.rgb, use.used, config) for picture, use in zip(pictures, uses, strict=True)]
    grids = tuple((use.used[1] // config.patch_size, use.used[0] // config.patch_size) for use in uses)
    return Packed(
        pixel_values=np.concatenate(values),
        position_ids=np.concatenate([patch_positions(grid, config.merge_size) for grid in grids]),
        segment_ids=np.repeat(np.arange(len(grids), dtype=np.int64), [rows * columns for rows, columns in grids]),
        grids=grids,
        images=uses,
    )


def patch_positions(grid: tuple[int, int], merge_size: int) -> NDArray[np.int64]:
    """(row, column) of every patch of a ``grid`` = (rows, columns), in merge-block order: int64 [N, 2]."""
    rows, columns = np.indices(grid, dtype=np.int64)
    m = merge_size
    shape = (grid[0] // m, m, grid[1] // m, m)
    return np.stack([axis.reshape(shape).transpose(0, 2, 1, 3).reshape(-1) for axis in (rows, columns)], axis=-1)


def mrope_positions(
    ids: NDArray[np.int64] | Sequence[int],
    grids: Sequence[tuple[int, int]],
    *,
    image_token_id: int,
    merge_size: int,
) -> tuple[NDArray[np.int64], int]:
    """M-RoPE positions (time, row, column) of a prompt, int64 [3, S], and the position of the next token.

    ``ids`` hold ``image_token_id`` once per visual token; ``grids`` are (rows, columns) in patches, one per picture
    in order. Text moves all three axes by one per token; a picture stands at one time and spreads over rows and
    columns; the text behind it goes on from the greatest of them (Qwen2-VL, arXiv:2409.12191, section 2.1).

    Raises ValueError when the visual tokens in ``ids`` are not those of ``grids``.
    """
    tokens = np.asarray(ids, dtype=np.int64)
    visual = np.flatnonzero(tokens == image_token_id)
    counts = [(rows // merge_size) * (columns // merge_size) for rows, columns in grids]
    if len(visual) != sum(counts):
        raise ValueError(f"the prompt holds {len(visual)} visual tokens, the pictures need {sum(counts)}")
    positions = np.empty((3, len(tokens)), dtype=np.int64)
    done = position = taken = 0  # tokens written, next position, visual tokens used up
    for (rows, columns), count in zip(grids, counts, strict=True):
        start = int(visual[taken])
        if int(visual[taken + count - 1]) != start + count - 1:
            raise ValueError("the visual tokens of one picture are not side by side")
        positions[:, done:start] = np.arange(start - done) + position
        position += start - done
        row, column = np.indices((rows // merge_size, columns // merge_size), dtype=np.int64)
        positions[0, start : start + count] = position
        positions[1, start : start + count] = position + row.reshape(-1)
        positions[2, start : start + count] = position + column.reshape(-1)
        position += max(rows, columns) // merge_size
        done = start + count
        taken += count
    positions[:, done:] = np.arange(len(tokens) - done) + position
    return positions, position + len(tokens) - done


def normalised_levels(mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """What each of the 256 levels becomes, per channel: float32 [3, 256].

    Rounded where the reference rounds: scaled in float64, then float32 throughout. A table is exact and cheap.
    """
    scaled = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
    return (scaled[None, :] - np.asarray(mean, np.float32)[:, None]) / np.asarray(std, np.float32)[:, None]
