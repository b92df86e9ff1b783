"""What a model with a tower over tiles says of pictures made up for a comparison: how many tiles, which rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveola.family import Family
from foveola.intake.geometries import geometry_of
from foveola.intake.views import Size, View

Array = NDArray[np.generic]
Case = tuple[str, dict[str, Array], Tensor]
"""Name, inputs of the vision graph, features [M, E] that the model makes of them."""


@torch.no_grad()
def tiled(
    model: nn.Module, family: Family, vision: Mapping[str, Any], image_px: tuple[int, int] | None
) -> Iterator[Case]:
    """Single and mixed pictures, and one of ``image_px`` = (height, width) where a bundle is made for that."""
    geometry: Any = geometry_of({"geometry": family.geometry, "vision": vision})
    tile = vision["tile"]
    pictures: list[tuple[str, list[Size]]] = [
        ("square picture", [(tile, tile)]),
        ("wide picture", [(3 * tile, tile)]),
        ("three pictures of different shape", [(tile, 2 * tile), (tile // 2, tile // 2), (5 * tile, 4 * tile)]),
    ]
    if image_px is not None:
        pictures.append((f"picture of {image_px[0]} x {image_px[1]} px", [(image_px[1], image_px[0])]))
    for seed, (name, sizes) in enumerate(pictures):
        views: tuple[View, ...] = geometry.fit(sizes)
        counts = [view.tiles for view in views]
        random = torch.Generator().manual_seed(seed)
        tiles = list(torch.split(torch.randn(sum(counts), 3, tile, tile, generator=random), counts))
        inputs: dict[str, Array] = {"pixel_values": torch.cat(tiles).numpy()}
        gathered = geometry.gathered(views, counts)
        if gathered is not None:
            inputs["gather"] = gathered
        yield name, inputs, torch.cat(list(_TILED[family.geometry](model, tiles, views)))


def _alone(model: Any, tiles: list[Tensor], views: Sequence[View]) -> Sequence[Tensor]:
    return [one.flatten(0, -2) for one in model.model.get_image_features(torch.cat(tiles)).pooler_output]


def _padded(tiles: list[Tensor]) -> Tensor:
    """[pictures, tiles of the one with most, 3, S, S], zeros behind those of the others."""
    most = max(len(one) for one in tiles)
    return torch.stack([nn.functional.pad(one, (0, 0) * 3 + (0, most - len(one))) for one in tiles])


def _anyres(model: Any, tiles: list[Tensor], views: Sequence[View]) -> Sequence[Tensor]:
    sizes = torch.tensor([[view.use.original[1], view.use.original[0]] for view in views])
    return list(model.model.get_image_features(_padded(tiles), image_sizes=sizes).pooler_output)


def _named(model: Any, tiles: list[Tensor], views: Sequence[View]) -> Sequence[Tensor]:
    return list(model.model.get_image_features(_padded(tiles)).pooler_output)


def _turned(model: Any, tiles: list[Tensor], views: Sequence[View]) -> Sequence[Tensor]:
    tile = tiles[0].shape[-1]
    grids = [(view.use.used[1] // tile, view.use.used[0] // tile) for view in views]
    return list(model.get_image_features(_padded(tiles), grids))


_TILED: dict[str, Callable[[Any, list[Tensor], Sequence[View]], Sequence[Tensor]]] = {
    "llava": _alone,
    "llava_next": _anyres,
    "idefics3": _named,
    "internvl": _alone,
    "phi3_v": _turned,
}
