"""GPTQ: columns are rounded one after the other, and those still to come make up for what was lost.

Frantar et al. 2023, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (arXiv
2210.17323). The loudest columns come first, while there are most others to make up for them; as the grids of all blocks
are set beforehand, that order leaves no trace in the file. ``descended`` then asks again what the first columns could
not know (coordinate descent over the codes; Behdin et al. 2023, "QuantEase", arXiv 2309.01885).
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveola.weights.formats import Format
from foveola.weights.packed import Grid, Packed, encoded, grid_of, in_blocks

_STRIP = 64
"""Columns that are worked on before the rest hears of it."""


def gptq(
    weight_NK: Tensor, moments_KK: Tensor, form: Format, *, shrink_NB: Tensor | None = None, damping: float = 0.05
) -> Packed:
    """The matrix in ``form``. ``damping`` is a share of the moments' mean diagonal; ``shrink_NB`` as ``grid_of``."""
    weight = weight_NK.detach().float()
    blocks = in_blocks(weight, form.block)
    grid = grid_of(blocks, form.bits, 1.0 if shrink_NB is None else shrink_NB)
    order = moments_KK.diagonal().argsort(descending=True, stable=True)
    columns = _Columns(grid, weight.shape[1], form)
    codes_KN = columns.in_turn(weight.t()[order], order, _factor(moments_KK[order][:, order], damping))
    return columns.packed(codes_KN)


def descended(
    packed: Packed, weight_NK: Tensor, moments_KK: Tensor, *, damping: float = 0.05, times: int = 2
) -> Packed:
    """``packed``, which stands for ``weight_NK``, with every code looked at ``times`` again beside all the others.

    The error under the damped moments only falls. Scales and zero points stay.
    """
    columns = _Columns(
        Grid(packed.scales, packed.zero_points().float(), packed.format.bits), packed.inner, packed.format
    )
    codes_KN = packed.codes().flatten(1)[:, : packed.inner].t().float().contiguous()
    columns.descend(weight_NK.detach().float().t(), codes_KN, damped(moments_KK, damping), times)
    return columns.packed(codes_KN)


class _Columns:
    """The grid of every weight, laid out by columns [K, N], which are worked on one by one."""

    def __init__(self, grid: Grid, inner: int, form: Format) -> None:
        self._grid, self._form = grid, form
        self._scales, self._zeros = (
            part.repeat_interleave(form.block, 1)[:, :inner].t().contiguous() for part in (grid.scales, grid.zeros)
        )
        self._top = 2**form.bits - 1

    def packed(self, codes_KN: Tensor) -> Packed:
        """Codes of all columns as a file holds them."""
        inner, (rows, count) = len(codes_KN), self._grid.zeros.shape
        codes = self._grid.zeros.repeat_interleave(self._form.block, 1)  # padding stands for 0
        codes[:, :inner] = codes_KN.t()
        return encoded(codes.view(rows, count, self._form.block), self._grid, inner, self._form)

    def _codes(self, wanted_N: Tensor, column: int) -> tuple[Tensor, Tensor]:
        """The nearest codes of a column, and the weights that they stand for."""
        scales, zeros = self._scales[column], self._zeros[column]
        codes = (wanted_N / scales).round_().add_(zeros).clamp_(0, self._top)
        return codes, (codes - zeros) * scales

    def in_turn(self, left_KN: Tensor, order_K: Tensor, upper_KK: Tensor) -> Tensor:
        """Codes [K, N] of columns that come in this order; ``left_KN`` and ``upper_KK`` are in it already."""
        left, codes = left_KN.clone(), torch.empty_like(left_KN)
        for first in range(0, len(left), _STRIP):
            last = min(first + _STRIP, len(left))
            lost = torch.empty_like(left[first:last])
            for at in range(first, last):
                column = int(order_K[at])
                codes[column], rounded = self._codes(left[at], column)
                lost[at - first] = (left[at] - rounded) / upper_KK[at, at]
                left[at + 1 : last].addr_(upper_KK[at, at + 1 : last], lost[at - first], alpha=-1)
            left[last:].addmm_(upper_KK[first:last, last:].t(), lost, alpha=-1)
        return codes

    def descend(self, weight_KN: Tensor, codes_KN: Tensor, moments_KK: Tensor, times: int) -> None:
        """Replace one column of codes after the other by what errs least beside all the others, in place."""
        error = (codes_KN - self._zeros) * self._scales - weight_KN
        for _ in range(times):
            for first in range(0, len(error), _STRIP):
                last = min(first + _STRIP, len(error))
                slope = moments_KK[first:last] @ error
                for at in range(first, last):
                    before = error[at] + weight_KN[at]
                    codes_KN[at], after = self._codes(before - slope[at - first] / moments_KK[at, at], at)
                    moved = after - before
                    error[at] += moved
                    slope.addr_(moments_KK[first:last, at], moved)


def nearest(weight_NK: Tensor, form: Format, shrink: Tensor | float = 1.0) -> Packed:
    """Round to nearest, over ranges narrowed by ``shrink``."""
    blocks = in_blocks(weight_NK, form.block)
    grid = grid_of(blocks, form.bits, shrink)
    return encoded(grid.nearest(blocks), grid, weight_NK.shape[1], form)


def damped(moments_KK: Tensor, damping: float, times: float = 1.0) -> Tensor:
    """The moments with ``damping * times`` of their mean diagonal added to it."""
    stiffer = moments_KK.clone()
    stiffer.diagonal().add_((float(moments_KK.diagonal().mean()) or 1.0) * damping * times)
    return stiffer


def _factor(moments_KK: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the inverse of the damped moments; dead inputs count as independent ones.

    Damping grows tenfold until the factorisation succeeds: moments of few samples are singular.
    """
    for attempt in range(4):
        lower, failed = torch.linalg.cholesky_ex(damped(moments_KK, damping, 10.0**attempt))
        if int(failed) == 0:
            inverse = torch.cholesky_inverse(lower)
            upper: Tensor
            upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if int(failed) == 0:
                return upper
    return torch.eye(moments_KK.shape[0])
