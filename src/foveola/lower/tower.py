"""The vision tower as a graph: packed patches of any number of pictures in, features for the decoder out."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from foveola.family import TowerNames
from foveola.family.base import TowerShape
from foveola.lower import operators
from foveola.lower.activation import activation
from foveola.lower.dense import PackedWeights, inputs_of, layer
from foveola.lower.rotary import Rotary
from foveola.lower.selection import Selection, Selector


class Norm(nn.Module):
    """The weights and epsilon of one layer normalisation of the model."""

    weight: Tensor
    bias: Tensor

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        assert isinstance(source, nn.LayerNorm)
        self.register_buffer("weight", source.weight.detach())
        self.register_buffer("bias", source.bias.detach())
        self.epsilon = float(source.eps)

    def forward(self, x: Tensor) -> Tensor:
        """[..., E] -> [..., E]."""
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class Block(nn.Module):
    """The layers of one block of the tower."""

    def __init__(
        self, model: nn.Module, path: str, names: TowerNames, shape: TowerShape, packed: PackedWeights
    ) -> None:
        super().__init__()
        at = f"{path}.".__add__
        self.attention_norm = Norm(model.get_submodule(at(names.attention_norm)))
        self.qkv = layer(model, [at(names.query_key_value)], packed)
        self.output = layer(model, [at(names.output)], packed)
        self.mlp_norm = Norm(model.get_submodule(at(names.mlp_norm)))
        self.up = layer(model, [at(names.up)], packed)
        self.down = layer(model, [at(names.down)], packed)
        self.activation = activation(shape.activation)
        self.heads = inputs_of(model, at(names.output)) // shape.head_dim  # its own: blocks may be pruned apart

    def mlp(self, x: Tensor) -> Tensor:
        """[N, E] -> [N, E]."""
        down: Tensor = self.down(self.activation(self.up(x)))
        return down


class TowerGraph(nn.Module):
    """A pre-norm tower over packed patches, for tracing. Inputs and outputs as in ``export.VISION``.

    All pictures go through in one sequence; a patch sees its own picture only. transformers loops over the pictures
    instead, which no graph with dynamic shapes can hold.

    Sums and normalisations are plain operators over [N, E]: SkipLayerNormalization, which ONNX Runtime makes of them
    where there is a batch axis, is six times slower than the two on CPUs; and Gemm, with the bias in it, needs two
    axes.

    With a ``selection`` some visual tokens go no further than its place (``selection.py``).
    """

    def __init__(
        self,
        model: nn.Module,
        vision: str,
        names: TowerNames,
        shape: TowerShape,
        packed: PackedWeights,
        selection: Selection | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        root = model.get_submodule(vision)
        self.patch = layer(model, [f"{vision}.{names.patch}"], packed)
        self.rotary = Rotary(root.get_submodule(names.rotary), shape.rotary_axes)
        count = len(list(root.get_submodule(names.blocks).children()))
        self.blocks = nn.ModuleList(
            Block(model, f"{vision}.{names.blocks}.{index}", names, shape, packed) for index in range(count)
        )
        self.norm = Norm(root.get_submodule(names.merger_norm))
        self.merger_up = layer(model, [f"{vision}.{names.merger_up}"], packed)
        self.merger_down = layer(model, [f"{vision}.{names.merger_down}"], packed)
        self.scale = shape.head_dim**-0.5
        self.selector = None if selection is None else Selector(selection.after, shape.merge_size)

    def forward(
        self, pixel_values: Tensor, position_ids: Tensor, segment_ids: Tensor, keep: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """[N, C*P*P], [N, 2], [N] -> [N / merge**2, H]; with a selection and keep [N]: what ``Selector`` gives, too."""
        x = self.patch(pixel_values)
        cos, sin = self.rotary(position_ids.t()[:, None])
        bias = torch.where(segment_ids[:, None] == segment_ids[None], 0.0, torch.finfo(torch.float32).min)[None, None]
        if self.selector is None or keep is None:
            return self._merge(self._through(self.blocks, x, cos, sin, bias))
        x = self._through(self.blocks[: self.selector.after], x, cos, sin, bias)
        x, cos, sin, bias, kept = self.selector(x, cos, sin, position_ids, segment_ids, keep)
        x = self._through(self.blocks[self.selector.after :], x, cos, sin, bias)
        return self._merge(x), kept.index, kept.count

    def _through(self, blocks: Iterable[nn.Module], x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """[N, E] -> [N, E]."""
        for block in blocks:
            assert isinstance(block, Block)
            heads = block.heads
            q, k, v = (part.unsqueeze(0) for part in block.qkv(block.attention_norm(x)).chunk(3, dim=-1))
            q, k = operators.rotary(q, cos, sin, heads), operators.rotary(k, cos, sin, heads)
            x = x + block.output(operators.attention(q, k, v, bias, heads=heads, scale=self.scale).squeeze(0))
            x = x + block.mlp(block.mlp_norm(x))
        return x

    def _merge(self, x: Tensor) -> Tensor:
        """[N, E] -> [N / merge**2, H]."""
        merged = self.norm(x).reshape(-1, self.shape.merge_size**2 * x.shape[-1])
        features: Tensor = self.merger_down(nn.functional.gelu(self.merger_up(merged)))
        return features
