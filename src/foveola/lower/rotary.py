"""Rotary angles from positions on one or more axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foveola.exchange import Unsupported


class Rotary(nn.Module):
    """Cosine and sine of ``position * frequency``, where each frequency reads one axis of the position.

    The choice of axes is a table [axes, D // 2] with one number per column, zero elsewhere: products are summed over
    the axes, and exactly one term counts. (A matrix product of the transposed positions would say the same; ONNX
    Runtime 1.32 crashes in its MatmulTransposeFusion over Transpose, Cast, MatMul.)
    """

    frequencies: Tensor

    def __init__(self, source: nn.Module, axes: Sequence[int] | None) -> None:
        super().__init__()
        inverse = source.inv_freq
        assert isinstance(inverse, Tensor)
        self.amplitude = float(getattr(source, "attention_scaling", 1.0))
        axes = axes or (0,) * len(inverse)
        if len(axes) % len(inverse):
            raise Unsupported(
                f"the model turns {2 * len(inverse)} of the {2 * len(axes)} channels of a head with the position; "
                "expected all of them."
            )
        table = torch.zeros(max(axes) + 1, len(axes))
        # A tower has fewer frequencies than axes ask for: it uses them once per axis.
        table[torch.tensor(axes), torch.arange(len(axes))] = inverse.repeat(len(axes) // len(inverse))
        self.register_buffer("frequencies", table[:, None, None].detach().float())

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[axes, B, S] int64 -> cosine and sine, fp32 [B, S, D // 2]."""
        angles = (positions.float()[..., None] * self.frequencies).sum(dim=0)
        cos, sin = angles.cos(), angles.sin()
        return (cos, sin) if self.amplitude == 1.0 else (cos * self.amplitude, sin * self.amplitude)
