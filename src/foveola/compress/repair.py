"""Closed-form repair: what is left of a layer's input is made to say as much as possible of what is gone.

    W' = W X X_Sᵀ (X_S X_Sᵀ + λ I)⁻¹

is the ridge solution of min ‖W X - W' X_S‖² + λ‖W'‖²; it needs the moments of X only. Where the layer has a bias, X is
centred first and the mean of what is gone moves into the bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Moments:
    """Sums over tokens of what goes into a layer: ``gram`` Σ x xᵀ fp32 [K, K], ``total`` Σ x [K], and how many."""

    gram: Tensor
    total: Tensor
    tokens: int

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """The moments of inputs [..., K]."""
        flat = x.detach().reshape(-1, x.shape[-1]).float()
        return cls(flat.T @ flat, flat.sum(0), len(flat))

    def add(self, x: Tensor) -> None:
        """Further inputs [..., K]."""
        more = Moments.of(x)
        self.gram, self.total, self.tokens = self.gram + more.gram, self.total + more.total, self.tokens + more.tokens


def repaired(
    weight_NK: Tensor, moments: Moments, keep: Tensor, *, ridge: float = 0.01, into_bias: bool = False
) -> tuple[Tensor, Tensor]:
    """The weight [N, kept] that best replaces ``weight_NK`` when only the columns ``keep`` (int64) of its input stay,
    and what to add to the bias [N] (0 without ``into_bias``).

    ``ridge`` is λ as a share of the mean of the kept diagonal. λ pulls towards the old columns instead of towards 0:
    what is missing is added, and what is there is not shrunk. Inputs that were never active keep their weight.
    """
    weight, gram = weight_NK.double(), moments.gram.double()
    mean = moments.total.double() / max(1, moments.tokens)
    if into_bias:
        gram = gram - moments.tokens * torch.outer(mean, mean)
    kept = gram[keep][:, keep]
    scale = float(kept.diagonal().mean())
    new = weight[:, keep]
    if scale > 0:
        damped = kept + ridge * scale * torch.eye(len(keep), dtype=torch.float64)
        missing = weight @ gram[:, keep] - new @ kept
        new = new + torch.linalg.solve(damped, missing.T).T
    shift = weight @ mean - new @ mean[keep] if into_bias else torch.zeros(len(weight), dtype=torch.float64)
    return new.to(weight_NK.dtype), shift.to(weight_NK.dtype)


def output_error(
    weight_NK: Tensor, moments: Moments, keep: Tensor, new_NS: Tensor, shift_N: Tensor | None = None
) -> float:
    """``‖W X - W' X_S - shift‖ / ‖W X‖``, from moments alone."""
    gram, weight = moments.gram.double(), weight_NK.double()
    difference = weight.clone()
    difference[:, keep] -= new_NS.double()
    lost = float(((difference @ gram) * difference).sum())
    if shift_N is not None:
        shift = shift_N.double()
        lost += moments.tokens * float(shift.square().sum()) - 2 * float(shift @ difference @ moments.total.double())
    whole = float(((weight @ gram) * weight).sum())
    return math.sqrt(max(0.0, lost) / max(whole, 1e-300))
