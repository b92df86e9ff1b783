"""Matrices of a few bits: what a file holds of them, and round-to-nearest, the simplest way to get there.

A block is ``block`` neighbouring weights of one output row. It has a scale and a zero point of its own:
``w = (q - zero) * scale`` with ``q`` in ``0 .. 2**bits - 1``. Scales are rounded to 16 bits before the weights are,
so that a file that stores them in 16 bits says exactly the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from foveola.weights.formats import Format

ROWS = 4096
"""Rows of a matrix that are worked on at a time: an embedding in fp32 is several times what it is on disk."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix [N, K] in ``format``.

    ``values`` uint8 [N, ceil(K/block), block*bits/8], low half byte first; ``scales`` fp32 [N, ceil(K/block)];
    ``zeros`` uint8 [N, ceil(ceil(K/block)*bits/8)], packed alike.
    """

    values: Tensor
    scales: Tensor
    zeros: Tensor
    inner: int
    format: Format

    @property
    def outer(self) -> int:
        """N, the number of rows."""
        return int(self.values.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes that a file spends on it, with scales in 16 bits."""
        return self.values.numel() + 2 * self.scales.numel() + self.zeros.numel()

    def codes(self) -> Tensor:
        """The whole numbers, uint8 [N, ceil(K/block), block]; those of padding, too."""
        return _unpack(self.values, self.format.bits).view(*self.values.shape[:2], self.format.block)

    def zero_points(self) -> Tensor:
        """One number per block, uint8 [N, ceil(K/block)]."""
        return _unpack(self.zeros, self.format.bits)[:, : self.scales.shape[1]]

    @property
    def around_zero(self) -> bool:
        """Whether the zero point of every block is the middle of all codes, as it is where none is told."""
        return bool((self.zero_points() == 2 ** (self.format.bits - 1)).all())

    def dequantised(self) -> Tensor:
        """The matrix that the packed one stands for, fp32 [N, K]. Besides it little memory is taken, however large."""
        if self.outer <= ROWS:
            return self._rows(slice(None))
        whole = torch.empty(self.outer, self.inner)
        for begin in range(0, self.outer, ROWS):
            whole[begin : begin + ROWS] = self._rows(slice(begin, begin + ROWS))
        return whole

    def _rows(self, chosen: slice) -> Tensor:
        part = replace(self, values=self.values[chosen], scales=self.scales[chosen], zeros=self.zeros[chosen])
        shifted = part.codes().float() - part.zero_points()[..., None].float()
        return (shifted * part.scales[..., None]).flatten(1)[:, : self.inner].contiguous()


@dataclass(frozen=True, slots=True)
class Grid:
    """What the blocks [N, B] of a matrix are rounded to: fp32 scales that 16 bits hold, whole zero points."""

    scales: Tensor
    zeros: Tensor
    bits: int

    def nearest(self, blocks_NBk: Tensor) -> Tensor:
        """The codes, as fp32 whole numbers [N, B, k], of blocks of weights."""
        scaled = blocks_NBk / self.scales[..., None]
        return (scaled.round_().add_(self.zeros[..., None])).clamp_(0, 2**self.bits - 1)

    def values(self, codes_NBk: Tensor) -> Tensor:
        """The weights that codes stand for."""
        return (codes_NBk - self.zeros[..., None]) * self.scales[..., None]


def in_blocks(weight_NK: Tensor, block: int) -> Tensor:
    """[N, K] as [N, ceil(K/block), block]; the last block is padded with zeros."""
    rows, inner = weight_NK.shape
    count = -(-inner // block)
    return nn.functional.pad(weight_NK.detach().float(), (0, count * block - inner)).view(rows, count, block)


def grid_of(blocks_NBk: Tensor, bits: int, shrink: Tensor | float = 1.0) -> Grid:
    """The grid over each block's range, which always holds 0; ``shrink`` (a number or [N, B]) narrows the range."""
    top = 2**bits - 1
    low, high = blocks_NBk.amin(-1).clamp(max=0) * shrink, blocks_NBk.amax(-1).clamp(min=0) * shrink
    scales = ((high - low) / top).clamp(min=2.0**-14).half().float()  # 2**-14: the smallest normal fp16
    return Grid(scales, (-low / scales).round().clamp(0, top), bits)


def grid_around_zero(blocks_NBk: Tensor, bits: int) -> Grid:
    """The grid whose zero point is the middle of all codes. The largest weight of a block, whichever its sign, lies on
    the first code, which there is one more of than on the other side; so a scale may be negative."""
    middle = 2 ** (bits - 1)
    largest = blocks_NBk.gather(-1, blocks_NBk.abs().argmax(-1, keepdim=True))[..., 0]
    size = (largest.abs() / middle).clamp(min=2.0**-14).half().float()
    return Grid(torch.where(largest > 0, -size, size), torch.full_like(size, middle), bits)


def encoded(codes_NBk: Tensor, grid: Grid, inner: int, form: Format) -> Packed:
    """Codes on ``grid`` as a file holds them; ``inner`` is K, the columns that are no padding."""
    return Packed(
        values=_pack(codes_NBk.to(torch.uint8), form.bits).contiguous(),
        scales=grid.scales.contiguous(),
        zeros=_pack(grid.zeros.to(torch.uint8), form.bits).contiguous(),
        inner=inner,
        format=form,
    )


def pack(weight_NK: Tensor, form: Format) -> Packed:
    """Round a matrix to ``form``; K need not divide the block (the last block is padded with zeros)."""
    blocks = in_blocks(weight_NK, form.block)
    grid = grid_around_zero(blocks, form.bits) if form.symmetric else grid_of(blocks, form.bits)
    return encoded(grid.nearest(blocks), grid, weight_NK.shape[1], form)


def pack_rows(weight_NK: Tensor, form: Format) -> Packed:
    """As ``pack``, some rows at a time: what it takes besides the matrix stays small."""
    return concatenated([pack(rows, form) for rows in torch.split(weight_NK, ROWS)])


def concatenated(parts: list[Packed]) -> Packed:
    """The rows of several matrices below one another. They must share format and K. One alone is not copied."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return Packed(
        values=torch.cat([p.values for p in parts]),
        scales=torch.cat([p.scales for p in parts]),
        zeros=torch.cat([p.zeros for p in parts]),
        inner=first.inner,
        format=first.format,
    )


def _pack(q: Tensor, bits: int) -> Tensor:
    """Numbers of ``bits`` bits side by side in bytes along the last axis, the first in the lowest bits."""
    each = 8 // bits
    q = nn.functional.pad(q, (0, -q.shape[-1] % each))
    packed = q[..., 0::each]
    for place in range(1, each):
        packed = packed | (q[..., place::each] << (bits * place))
    return packed


def _unpack(packed: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return packed
    top = 2**bits - 1
    return torch.stack([packed >> place & top for place in range(0, 8, bits)], dim=-1).flatten(-2)
