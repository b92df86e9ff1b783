"""Towers over square tiles (CLIP, SigLIP, InternViT) with what leads from them to the decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveola.family import PartNames, TowerNames
from foveola.family.base import TowerShape
from foveola.lower import operators
from foveola.lower.activation import activation
from foveola.lower.dense import PackedWeights, layer
from foveola.lower.norms import norm_of
from foveola.lower.tower import Block


class TileTower(nn.Module):
    """All tiles in one batch, for tracing. Input ``pixel_values`` [T, C, S, S]; with learnt separators ``gather`` [M].

    Sums and normalisations are over [T*L, E], as in ``tower.TowerGraph`` and for the same reason.
    """

    position: Tensor
    class_token: Tensor | None
    separators: Tensor | None

    def __init__(
        self, model: nn.Module, parts: PartNames, names: TowerNames, shape: TowerShape, packed: PackedWeights
    ) -> None:
        super().__init__()
        self.shape = shape
        root = model.get_submodule(parts.vision)
        at = f"{parts.vision}.".__add__
        assert names.position is not None
        convolution = model.get_submodule(at(names.patch))
        self.size = int(convolution.weight.shape[-1])  # type: ignore[index]
        self.patch = layer(model, [at(names.patch)], packed)
        self.register_buffer("position", _table(model, at(names.position)))
        token = None if names.class_token is None else model.get_parameter(at(names.class_token))
        self.register_buffer("class_token", None if token is None else token.detach().reshape(1, 1, -1))
        self.first_norm = norm_of(root.get_submodule(names.first_norm)) if names.first_norm else None
        self.last_norm = norm_of(root.get_submodule(names.last_norm)) if names.last_norm else None
        depth = len(list(root.get_submodule(names.blocks).children()))
        self.blocks = nn.ModuleList(
            Block(model, at(f"{names.blocks}.{index}"), names, shape, packed)
            for index in range(depth if shape.blocks is None else shape.blocks)
        )
        self.projector_norm = norm_of(model.get_submodule(parts.projector_norm)) if parts.projector_norm else None
        self.projector = nn.ModuleList(layer(model, [path], packed) for path in parts.projector)
        self.activation = activation(shape.projector_activation)
        rows = [model.get_parameter(path).detach() for path in parts.separators]
        self.register_buffer("separators", torch.stack([row.flatten() for row in rows]) if rows else None)
        self.scale = shape.head_dim**-0.5

    def forward(self, pixel_values: Tensor, gather: Tensor | None = None) -> Tensor:
        """[T, C, S, S], [M] -> [M, H]; without separators M is T times the features of a tile."""
        features = self._squares(self._tower(pixel_values))
        if self.separators is None or gather is None:
            return self._project(features)
        if self.shape.separators_projected:
            features = self._project(torch.cat([features, self.separators]))
        else:
            features = torch.cat([self._project(features), self.separators])
        return features.index_select(0, gather)

    def _tower(self, pixel_values: Tensor) -> Tensor:
        """[T, C, S, S] -> [T, n*n, E]."""
        tiles, channels = pixel_values.shape[0], pixel_values.shape[1]
        side, size = self.shape.tile // self.size, self.size
        patches = pixel_values.reshape(tiles, channels, side, size, side, size).permute(0, 2, 4, 1, 3, 5)
        x = self.patch(patches.reshape(tiles * side * side, channels * size * size)).reshape(tiles, side * side, -1)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(tiles, 1, x.shape[-1]), x], dim=1)
        x = x + self.position
        length, width = x.shape[1], x.shape[2]
        x = x.reshape(tiles * length, width)
        if self.first_norm is not None:
            x = self.first_norm(x)
        for block in self.blocks:
            assert isinstance(block, Block)
            q, k, v = (part.reshape(tiles, length, -1) for part in block.qkv(block.attention_norm(x)).chunk(3, dim=-1))
            seen = operators.attention(q, k, v, None, heads=block.heads, scale=self.scale)
            x = x + block.attended(seen.reshape(tiles * length, -1))
            x = x + block.mlp(block.mlp_norm(x))
        if self.last_norm is not None:
            x = self.last_norm(x)
        every: Tensor = x.reshape(tiles, length, width)
        return every if self.class_token is None else every[:, 1:]

    def _squares(self, x: Tensor) -> Tensor:
        """[T, n*n, E] -> [T * (n/m)**2, m*m*E]: squares of m x m patches side by side, row by row."""
        merge, width = self.shape.merge_size, x.shape[-1]
        if merge == 1:
            return x.reshape(-1, width)
        side = self.shape.tile // self.size // merge
        squares: Tensor = x.reshape(-1, side, merge, side, merge, width).permute(0, 1, 3, 2, 4, 5)
        return squares.reshape(-1, merge * merge * width)

    def _project(self, x: Tensor) -> Tensor:
        """[M, m*m*E] -> [M, H]."""
        if self.projector_norm is not None:
            x = self.projector_norm(x)
        for index, one in enumerate(self.projector):
            x = one(x if index == 0 else self.activation(x))
        return x


def _table(model: nn.Module, path: str) -> Tensor:
    """Learnt positions [1, L, E], from an embedding or a parameter."""
    try:
        table = model.get_parameter(path)
    except AttributeError:
        table = model.get_parameter(f"{path}.weight")
    return table.detach().reshape(1, -1, table.shape[-1])
