"""GPTQ: columns are rounded one after the other, and those still to come make up for what was lost.

Frantar et al. 2023, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (arXiv
2210.17323). A block's grid is set when its first column's turn comes, from the weights as they are by then.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveola.weights.formats import Format
from foveola.weights.packed import Grid, Packed, encoded, grid_of, in_blocks


def gptq(
    weight_NK: Tensor, moments_KK: Tensor, form: Format, *, shrink_NB: Tensor | None = None, damping: float = 0.01
) -> Packed:
    """The matrix in ``form``. ``damping`` is a share of the moments' mean diagonal; ``shrink_NB`` as ``grid_of``."""
    inner = weight_NK.shape[1]
    whole = -(-inner // form.block) * form.block
    upper = _factor(moments_KK, damping)
    left = torch.nn.functional.pad(weight_NK.detach().float(), (0, whole - inner))
    codes = torch.zeros(left.shape[0], whole // form.block, form.block)
    scales, zeros = torch.ones(codes.shape[:2]), torch.zeros(codes.shape[:2])
    for number, first in enumerate(range(0, whole, form.block)):
        last = min(first + form.block, inner)
        block = left[:, first : first + form.block]
        shrink = 1.0 if shrink_NB is None else shrink_NB[:, number : number + 1]
        grid = grid_of(block[:, None], form.bits, shrink)
        scales[:, number], zeros[:, number] = grid.scales[:, 0], grid.zeros[:, 0]
        lost = torch.zeros(left.shape[0], last - first)
        for column in range(first, last):
            at = column - first
            code = grid.nearest(block[:, None, at : at + 1])
            codes[:, number, at] = code[:, 0, 0]
            error = (block[:, at] - grid.values(code)[:, 0, 0]) / upper[column, column]
            lost[:, at] = error
            block[:, at + 1 : last - first] -= error[:, None] * upper[column, column + 1 : last]
        left[:, last:inner] -= lost @ upper[first:last, last:inner]
        codes[:, number, last - first :] = zeros[:, number, None]  # padding stands for 0
    return encoded(codes, Grid(scales, zeros, form.bits), inner, form)


def nearest(weight_NK: Tensor, form: Format, shrink: Tensor | float = 1.0) -> Packed:
    """Round to nearest, over ranges narrowed by ``shrink``."""
    blocks = in_blocks(weight_NK, form.block)
    grid = grid_of(blocks, form.bits, shrink)
    return encoded(grid.nearest(blocks), grid, weight_NK.shape[1], form)


def _factor(moments_KK: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the inverse of the damped moments; dead inputs count as independent ones.

    Damping grows tenfold until the factorisation succeeds: moments of few samples are singular.
    """
    scale = float(moments_KK.diagonal().mean()) or 1.0
    for attempt in range(4):
        damped = moments_KK.clone()
        damped.diagonal().add_(scale * damping * 10**attempt)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if int(failed) == 0:
            inverse = torch.cholesky_inverse(lower)
            upper: Tensor
            upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if int(failed) == 0:
                return upper
    return torch.eye(moments_KK.shape[0])
