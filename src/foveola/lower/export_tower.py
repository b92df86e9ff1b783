"""Vision graphs of towers unlike Qwen2-VL's: over tiles, through windows, with features of several layers."""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch import nn
from torch.export import Dim

from foveola.family import Family
from foveola.family.base import Config, TowerShape
from foveola.lower.dense import PackedWeights, fold_patch_kernel
from foveola.lower.tiles import TileTower
from foveola.lower.towers import DeepTower, WindowedTower
from foveola.lower.tracing import traced


def is_plain(shape: TowerShape) -> bool:
    """Whether ``tower.TowerGraph`` is enough for a tower of this shape."""
    return not (shape.tile or shape.window or shape.deepstack)


def export_tower(model: nn.Module, family: Family, config: Config, packed: PackedWeights) -> ir.Model:
    """Over packed patches the inputs of ``export.VISION``, and ``sizes`` i64 [N, 2] where positions are learnt; over
    tiles pixel_values f32 [T, C, S, S], and ``gather`` i64 [M] where there are separators. -> features f32 [M, E].
    """
    shape = family.tower_shape(config)
    if shape.tile:
        return _tiles(model, TileTower(model, family.parts, family.tower, shape, packed), shape.tile)
    merged = shape.merge_size**2  # patches that become one feature
    width = fold_patch_kernel(model.get_submodule(f"{family.parts.vision}.{family.tower.patch}")).shape[1]
    example: list[torch.Tensor] = [
        torch.zeros(4 * merged, width),
        torch.zeros(4 * merged, 2, dtype=torch.long),
        torch.zeros(4 * merged, dtype=torch.long),
    ]
    sizes: dict[str, list[int | str | None]] = {
        "pixel_values": ["patches", width],
        "position_ids": ["patches", 2],
        "segment_ids": ["patches"],
    }
    tower = DeepTower if shape.deepstack else WindowedTower
    if tower is DeepTower:
        example.append(torch.full((4 * merged, 2), 4))
        sizes["sizes"] = ["patches", 2]
    patches = merged * Dim("features")
    return traced(
        tower(model, family.parts.vision, family.tower, shape, packed),
        tuple(example),
        ({0: patches},) * len(example),
        inputs=tuple(sizes),
        outputs=("features",),
        dimensions=sizes,
        results={"features": ["features", None]},
        model=model,
    )


def _tiles(model: nn.Module, graph: TileTower, side: int) -> ir.Model:
    tiles = Dim("tiles")
    sizes: dict[str, list[int | str | None]] = {"pixel_values": ["tiles", 3, side, side]}
    if graph.separators is None:
        return traced(
            graph,
            (torch.zeros(2, 3, side, side),),
            ({0: tiles},),
            inputs=tuple(sizes),
            outputs=("features",),
            dimensions=sizes,
            results={"features": ["features", None]},
            model=model,
        )
    sizes["gather"] = ["features"]
    return traced(
        graph,
        (torch.zeros(2, 3, side, side), torch.zeros(5, dtype=torch.long)),
        ({0: tiles}, {0: Dim("features")}),
        inputs=tuple(sizes),
        outputs=("features",),
        dimensions=sizes,
        results={"features": ["features", None]},
        model=model,
    )
