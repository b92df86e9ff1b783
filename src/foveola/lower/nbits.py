"""The modules over weights of a few bits, which export themselves as MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveola.exchange import Invalid
from foveola.lower import operators
from foveola.weights.packed import Packed


class QLinear(nn.Module):
    """A linear layer over packed weights. Exports itself as one MatMulNBits with its bias; elsewhere it computes."""

    values: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, packed: Packed, bias_N: Tensor | None = None) -> None:
        super().__init__()
        self.inner, self.outer, self.format = packed.inner, packed.outer, packed.format
        self.register_buffer("values", packed.values)
        self.register_buffer("scales", packed.scales)
        self.register_buffer("zeros", packed.zeros)
        self._around_zero = packed.around_zero
        self.register_buffer("bias", None if bias_N is None else bias_N.detach())

    def packed(self) -> Packed:
        """The weights as they are stored."""
        return Packed(self.values, self.scales, self.zeros, self.inner, self.format)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        bias = self.bias if isinstance(self.bias, Tensor) else None
        if not torch.compiler.is_exporting():
            return nn.functional.linear(x, self.packed().dequantised(), bias)
        return operators.matmul_nbits(
            x,
            self.values,
            self.scales,
            None if self._around_zero else self.zeros,
            bias,
            inner=self.inner,
            outer=self.outer,
            bits=self.format.bits,
            block=self.format.block,
            accuracy_level=self.format.accuracy_level,
        )


class QEmbedding(nn.Module):
    """A table of packed rows. Exports itself as one GatherBlockQuantized; elsewhere it computes."""

    values: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self.hidden, self.format = packed.inner, packed.format
        if self.format.bits == 2:
            raise Invalid("an embedding cannot be stored in 2 bits; choose int4 or int8 for it.", field="embedding")
        if self.hidden % self.format.block:
            raise Invalid(
                f"an embedding {self.hidden} wide cannot be stored in blocks of {self.format.block}; "
                "choose a block that divides its width.",
                field="block",
            )
        self.register_buffer("values", packed.values.flatten(1))  # [V, H*bits/8]
        self.register_buffer("scales", packed.scales)
        self.register_buffer("zeros", packed.zeros)

    def forward(self, ids_BS: Tensor) -> Tensor:
        """[B, S] -> [B, S, H]."""
        if not torch.compiler.is_exporting():
            blocks = self.scales.shape[1]
            table = Packed(
                self.values.view(-1, blocks, self.values.shape[1] // blocks),
                self.scales,
                self.zeros,
                self.hidden,
                self.format,
            )
            return nn.functional.embedding(ids_BS, table.dequantised())
        return operators.gather_nbits(
            ids_BS,
            self.values,
            self.scales,
            self.zeros,
            hidden=self.hidden,
            bits=self.format.bits,
            block=self.format.block,
        )
