"""Towers over packed patches that differ from Qwen2-VL's: windows (Qwen2.5-VL), learnt positions and DeepStack
(Qwen3-VL)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveola.family import TowerNames
from foveola.family.base import TowerShape
from foveola.lower.activation import activation
from foveola.lower.dense import PackedWeights, layer
from foveola.lower.norms import norm_of
from foveola.lower.tower import TowerGraph

_LOWEST = torch.finfo(torch.float32).min
_SIDE = 1 << 12
"""More windows than a picture has in a row; rows times rows times pictures must fit 63 bits."""


def bias_of(groups: Tensor) -> Tensor:
    """Group of each patch [N] -> what is added before the softmax, [1, 1, N, N]: patches see their own group."""
    return torch.where(groups[:, None] == groups[None], 0.0, _LOWEST)[None, None]


class WindowedTower(TowerGraph):
    """Qwen2.5-VL: in most blocks a patch sees the patches of its own window only."""

    def forward(  # type: ignore[override]
        self, pixel_values: Tensor, position_ids: Tensor, segment_ids: Tensor
    ) -> Tensor:
        """[N, C*P*P], [N, 2], [N] -> [N / merge**2, H]."""
        x = self.patch(pixel_values)
        cos, sin = self.rotary(position_ids.t()[:, None])
        window = torch.div(position_ids, self.shape.window, rounding_mode="floor")
        near = bias_of((segment_ids * _SIDE + window[:, 0]) * _SIDE + window[:, 1])
        whole = bias_of(segment_ids)
        for index, block in enumerate(self.blocks):
            x = self._through([block], x, cos, sin, whole if index in self.shape.whole_blocks else near)
        return self._merge(x)


class Merger(nn.Module):
    """One of DeepStack's mergers: normalised after the patches of a feature are joined."""

    def __init__(self, model: nn.Module, path: str, names: TowerNames, packed: PackedWeights) -> None:
        super().__init__()
        self.norm = norm_of(model.get_submodule(f"{path}.{names.deepstack_norm}"))
        self.up = layer(model, [f"{path}.{names.deepstack_up}"], packed)
        self.down = layer(model, [f"{path}.{names.deepstack_down}"], packed)
        self.activation = activation("gelu")

    def forward(self, x: Tensor) -> Tensor:
        """[M, merge**2 * E] -> [M, H]."""
        down: Tensor = self.down(self.activation(self.up(self.norm(x))))
        return down


class DeepTower(TowerGraph):
    """Qwen3-VL: learnt positions of a square grid, interpolated; features of some blocks beside those of the last.

    Inputs as ``export.VISION`` and ``sizes`` [N, 2], rows and columns of each patch's picture.
    """

    table: Tensor

    def __init__(
        self, model: nn.Module, vision: str, names: TowerNames, shape: TowerShape, packed: PackedWeights
    ) -> None:
        super().__init__(model, vision, names, shape, packed)
        assert names.position and names.deepstack
        self.register_buffer("table", model.get_parameter(f"{vision}.{names.position}.weight").detach())
        self.mergers = nn.ModuleList(
            Merger(model, f"{vision}.{names.deepstack}.{index}", names, packed) for index in range(len(shape.deepstack))
        )

    def forward(  # type: ignore[override]
        self, pixel_values: Tensor, position_ids: Tensor, segment_ids: Tensor, sizes: Tensor
    ) -> Tensor:
        """[N, C*P*P], [N, 2], [N], [N, 2] -> [N / merge**2, (1 + deep) * H]."""
        x = self.patch(pixel_values) + self._positions(position_ids, sizes)
        cos, sin = self.rotary(position_ids.t()[:, None])
        bias = bias_of(segment_ids)
        deep: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = self._through([block], x, cos, sin, bias)
            if index in self.shape.deepstack:
                merger = self.mergers[self.shape.deepstack.index(index)]
                deep.append(merger(x.reshape(-1, self.shape.merge_size**2 * x.shape[-1])))
        return torch.cat([self._merge(x), *deep], dim=-1)

    def _positions(self, position_ids: Tensor, sizes: Tensor) -> Tensor:
        """Learnt positions, bilinear between the four nearest, corners on corners: [N, E]."""
        side = int(self.table.shape[0] ** 0.5)
        place = position_ids.float() * (side - 1) / (sizes - 1).clamp(min=1).float()
        low = place.floor()
        part = place - low
        first = low.long().clamp(0, side - 1)
        second = (low.long() + 1).clamp(0, side - 1)
        found = torch.zeros(())
        for row, row_part in ((first, 1 - part), (second, part)):
            for column, column_part in ((first, 1 - part), (second, part)):
                weight = (row_part[:, 0] * column_part[:, 1])[:, None]
                found = found + weight * self.table.index_select(0, row[:, 0] * side + column[:, 1])
        return found
