"""A mixture of experts in the place of a gated MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveola.exchange import Unsupported
from foveola.family.base import DecoderShape
from foveola.lower import operators


class Experts(nn.Module):
    """The router and the experts of one block; exports itself as one MoE. The experts stay in one piece each."""

    router: Tensor
    gate_up: Tensor
    down: Tensor

    def __init__(self, model: nn.Module, router: str, experts: str, shape: DecoderShape) -> None:
        super().__init__()
        if shape.activation not in ("silu", "swish"):
            raise Unsupported(f"experts with the activation {shape.activation!r} are not supported; expected 'silu'.")
        self.chosen = shape.experts_per_token
        gate_up = model.get_parameter(f"{experts}.gate_up_proj").detach()  # [E, 2 I, H], all of gate before all of up
        count, both_widths, hidden = gate_up.shape
        both = gate_up.reshape(count, 2, both_widths // 2, hidden).transpose(1, 2).reshape(gate_up.shape)
        self.register_buffer("router", model.get_parameter(f"{router}.weight").detach().t().contiguous())
        self.register_buffer("gate_up", both.contiguous())
        self.register_buffer("down", model.get_parameter(f"{experts}.down_proj").detach().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]."""
        rows = x.flatten(0, 1)
        mixed = operators.mixture_of_experts(
            rows, torch.matmul(rows, self.router), self.gate_up, self.down, chosen=self.chosen
        )
        return mixed.reshape(x.shape)
