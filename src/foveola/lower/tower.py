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
from foveola.lower.norms import norm_of
from foveola.lower.rotary import Rotary
from foveola.lower.selection import Selector


class Block(nn.Module):
    """The layers of one block of the tower."""

    attention_scale: Tensor | None
    mlp_scale: Tensor | None

    def __init__(
        self, model: nn.Module, path: str, names: TowerNames, shape: TowerShape, packed: PackedWeights
    ) -> None:
        super().__init__()
        at = f"{path}.".__add__
        self.attention_norm = norm_of(model.get_submodule(at(names.attention_norm)))
        self.qkv = layer(model, [at(name) for name in names.attention_inputs], packed)
        self.output = layer(model, [at(names.output)], packed)
        self.mlp_norm = norm_of(model.get_submodule(at(names.mlp_norm)))
        self.gate = layer(model, [at(names.gate)], packed) if names.gate else None
        self.up = layer(model, [at(names.up)], packed)
        self.down = layer(model, [at(names.down)], packed)
        self.activation = activation(shape.activation)
        self.heads = inputs_of(model, at(names.output)) // shape.head_dim  # its own: blocks may be pruned apart
        for factor in ("attention_scale", "mlp_scale"):
            name: str | None = getattr(names, factor)
            self.register_buffer(factor, None if name is None else model.get_parameter(at(name)).detach())

    def attended(self, x: Tensor) -> Tensor:
        """The layer behind the attention, [N, E] -> [N, E]."""
        out: Tensor = self.output(x)
        return out if self.attention_scale is None else out * self.attention_scale

    def mlp(self, x: Tensor) -> Tensor:
        """[N, E] -> [N, E]."""
        up = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        down: Tensor = self.down(up)
        return down if self.mlp_scale is None else down * self.mlp_scale


class TowerGraph(nn.Module):
    """A pre-norm tower over packed patches, for tracing. Inputs and outputs as in ``export.VISION``.

    All pictures go through in one sequence; a patch sees its own picture only. transformers loops over the pictures
    instead, which no graph with dynamic shapes can hold.

    Sums and normalisations are plain operators over [N, E]: SkipLayerNormalization, which ONNX Runtime makes of them
    where there is a batch axis, is six times slower than the two on CPUs; and Gemm, with the bias in it, needs two
    axes.

    With ``select_after`` some visual tokens go no further than so many blocks (``selection.py``).
    """

    def __init__(
        self,
        model: nn.Module,
        vision: str,
        names: TowerNames,
        shape: TowerShape,
        packed: PackedWeights,
        select_after: int | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        root = model.get_submodule(vision)
        self.patch = layer(model, [f"{vision}.{names.patch}"], packed)
        assert names.rotary is not None
        self.rotary = Rotary(root.get_submodule(names.rotary), shape.rotary_axes)
        count = len(list(root.get_submodule(names.blocks).children()))
        self.blocks = nn.ModuleList(
            Block(model, f"{vision}.{names.blocks}.{index}", names, shape, packed) for index in range(count)
        )
        self.norm = norm_of(root.get_submodule(names.merger_norm))
        self.merger_up = layer(model, [f"{vision}.{names.merger_up}"], packed)
        self.merger_down = layer(model, [f"{vision}.{names.merger_down}"], packed)
        self.scale = shape.head_dim**-0.5
        self.selector = None if select_after is None else Selector(select_after, shape.merge_size)

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
            x = x + block.attended(operators.attention(q, k, v, bias, heads=heads, scale=self.scale).squeeze(0))
            x = x + block.mlp(block.mlp_norm(x))
        return x

    def _merge(self, x: Tensor) -> Tensor:
        """[N, E] -> [N / merge**2, H]."""
        merged = self.norm(x).reshape(-1, self.shape.merge_size**2 * x.shape[-1])
        features: Tensor = self.merger_down(nn.functional.gelu(self.merger_up(merged)))
        return features
