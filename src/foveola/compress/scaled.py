"""A linear layer of packed weights whose scales can learn: ``y = x (codes · scales)ᵀ + bias``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foveola.weights.packed import Packed


class ScaledLinear(nn.Module):
    """``change`` [N, B] is what learns: by how much each block's scale differs, as a share of it."""

    def __init__(self, packed: Packed, bias: Tensor | None) -> None:
        super().__init__()
        signed_NBk = packed.codes().to(torch.int16) - packed.zero_points()[..., None].to(torch.int16)
        self.register_buffer("signed", signed_NBk)
        self.register_buffer("base", packed.scales)
        self.change = nn.Parameter(torch.zeros_like(packed.scales))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.inner = packed.inner

    @property
    def weight(self) -> Tensor:
        """Something of the weights' dtype: models ask their layers for it."""
        return self.change

    def scales(self) -> Tensor:
        """As they are now, [N, B], at least the smallest normal number of 16 bits."""
        return (self.base * (1 + self.change)).clamp(min=2.0**-14)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        made: Tensor = _Product.apply(x, self.signed, self.scales(), self.inner)  # type: ignore[no-untyped-call]
        return made if self.bias is None else made + self.bias


class _Product(torch.autograd.Function):
    """Weights are made again for the backward pass: kept, those of all layers would be the model in fp32 twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, signed_NBk: Tensor, scales_NB: Tensor, inner: int) -> Tensor:
        ctx.save_for_backward(x, signed_NBk, scales_NB)
        ctx.inner = inner
        return x @ _weight(signed_NBk, scales_NB, inner).t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor, None]:
        (gradient,) = gradients
        x, signed_NBk, scales_NB = ctx.saved_tensors
        rows, count, block = signed_NBk.shape
        entered = gradient @ _weight(signed_NBk, scales_NB, ctx.inner) if ctx.needs_input_grad[0] else None
        of_weight_NK = gradient.reshape(-1, rows).t() @ x.reshape(-1, ctx.inner)
        of_weight_NK = torch.nn.functional.pad(of_weight_NK, (0, count * block - ctx.inner))
        return entered, None, (of_weight_NK.view(rows, count, block) * signed_NBk).sum(-1), None


def _weight(signed_NBk: Tensor, scales_NB: Tensor, inner: int) -> Tensor:
    return (signed_NBk * scales_NB[..., None]).flatten(1)[:, :inner]
