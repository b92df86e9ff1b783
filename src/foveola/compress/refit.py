"""Scales that fit the codes: once codes are chosen, the best scales of a row are a linear least-squares problem.

For codes less their zero points D (one row [K], cut into G blocks D_g) the error ``(w - Σ_g s_g D_g) Σ (…)ᵀ`` is least
where ``A s = b`` with ``A_gh = D_g Σ_gh D_hᵀ`` and ``b_g = D_g (Σ w)_g``: G numbers per row, in closed form, beside one
another instead of each block for itself. Codes and scales are then improved in turn, as in alternating least squares.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from foveola.compress.gptq import damped, descended
from foveola.weights.packed import Packed

_ROWS = 512
_HOLD = 0.01
"""How much the scales are held where they were, relative to their own curvature."""
_NARROWEST, _WIDEST = 0.5, 2.0


def refitted(packed: Packed, weight_NK: Tensor, moments_KK: Tensor, *, damping: float = 0.05) -> Packed:
    """``packed``, which stands for ``weight_NK``, with the scales that fit its codes best; codes and zeros stay."""
    moments = damped(moments_KK, damping)
    signed_NBk = packed.codes().float() - packed.zero_points()[..., None].float()
    weight = weight_NK.detach().float()
    parts = [
        _scales(signed_NBk[rows], packed.scales[rows], weight[rows], moments, packed.inner)
        for rows in torch.arange(packed.outer).split(_ROWS)  # type: ignore[no-untyped-call]
    ]
    return replace(packed, scales=torch.cat(parts))


def polished(
    packed: Packed, weight_NK: Tensor, moments_KK: Tensor, *, damping: float = 0.05, rounds: int = 2
) -> Packed:
    """Scales and codes in turn, ``rounds`` times."""
    for _ in range(rounds):
        packed = refitted(packed, weight_NK, moments_KK, damping=damping)
        packed = descended(packed, weight_NK, moments_KK, damping=damping, times=1)
    return packed


def _scales(signed_NBk: Tensor, before_NB: Tensor, weight_NK: Tensor, moments_KK: Tensor, inner: int) -> Tensor:
    rows, count, block = signed_NBk.shape
    signed_NK = signed_NBk.flatten(1)[:, :inner]

    def by_block(values_NK: Tensor) -> Tensor:
        return torch.nn.functional.pad(values_NK, (0, count * block - inner)).view(rows, count, block).sum(-1)

    curvature_NBB = torch.empty(rows, count, count)
    for at in range(count):
        columns = slice(at * block, min((at + 1) * block, inner))
        curvature_NBB[:, :, at] = by_block((signed_NK[:, columns] @ moments_KK[columns]) * signed_NK)
    wanted_NB = by_block((weight_NK @ moments_KK) * signed_NK)
    diagonal_NB = curvature_NBB.diagonal(dim1=1, dim2=2)
    held_NB = (_HOLD * diagonal_NB).clamp(min=1e-12)
    curvature_NBB = curvature_NBB + torch.diag_embed(held_NB)
    found_NB: Tensor = torch.linalg.solve(curvature_NBB, wanted_NB + held_NB * before_NB)
    found_NB = torch.minimum(torch.maximum(found_NB, _NARROWEST * before_NB), _WIDEST * before_NB)
    return found_NB.clamp(min=2.0**-14).half().float()  # as packed.grid_of: what 16 bits hold, and normal
