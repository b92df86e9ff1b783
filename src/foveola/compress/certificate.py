"""How far rounding errors travel: a bound on the output's relative error, and an expectation, block by block.

Relative errors are in the Frobenius norm over all calibration tokens. Of one layer y = W x the rounding contributes

    ρ_l ≤ α_l ‖W - Wq‖_F / ‖W‖_F,     α_l = ‖W‖_F σ_max(X) / ‖W X‖_F

and a block with gain κ (the largest factor by which its Jacobian can enlarge a relative error, residual path
included) carries what came in: δ ← κ δ + ρ (1 + κ δ). ρ holds for the calibration data without further assumption; κ
is the spectral norm of the Jacobian there, so that the chain is a certificate to first order in the errors.

A worst case at every step is far from what happens: ``tightness`` says how far. Beside it stands the expectation,
where errors are random directions: mean-square gains instead of spectral norms, and contributions that add in squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Contribution:
    """One rounded layer inside a block, in terms of the block's output.

    ``bound`` and ``expected`` are its relative errors there: largest possible, and root mean square.
    """

    layer: str
    bound: float
    expected: float


@dataclass(frozen=True, slots=True)
class Link:
    """One block: gains of a relative error from its input to its output, and what its own layers add."""

    block: str
    gain: float
    mean_gain: float
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class Error:
    """The relative error after a block: certified bound, expectation, and what was measured (None: not yet)."""

    block: str
    bound: float
    expected: float
    measured: float | None = None

    @property
    def tightness(self) -> float | None:
        """Bound over measured; 1 would be exact."""
        return None if not self.measured else self.bound / self.measured


def amplification(weight_NK: Tensor, gram_KK: Tensor) -> float:
    """``α = ‖W‖_F σ_max(X) / ‖W X‖_F`` from the second moments of the inputs, ``X Xᵀ`` up to any factor."""
    gram, weight = gram_KK.double(), weight_NK.double()
    output = float(((weight @ gram) * weight).sum())
    largest = float(torch.linalg.eigvalsh(gram)[-1].clamp(min=0))
    return float(weight.norm()) * math.sqrt(largest / max(output, 1e-300))


def layer_bound(weight_NK: Tensor, rounded_NK: Tensor, gram_KK: Tensor) -> float:
    """``α ‖W - Wq‖ / ‖W‖``: no error on the data seen is larger."""
    weight, rounded = weight_NK.double(), rounded_NK.double()
    relative = float((weight - rounded).norm() / weight.norm().clamp(min=1e-300))
    return amplification(weight_NK, gram_KK) * relative


def propagate(links: Sequence[Link], *, start: float = 0.0) -> list[Error]:
    """The errors after every block, in order, for a relative error ``start`` of the first block's input."""
    bound = start
    expected = start
    found = []
    for link in links:
        arrived, carried = link.gain * bound, link.mean_gain * expected
        added = sum(one.bound for one in link.contributions)
        bound = arrived + added * (1 + arrived)
        expected = (carried**2 + sum(one.expected**2 for one in link.contributions)) ** 0.5
        found.append(Error(link.block, bound, expected))
    return found


Function = Callable[[Tensor], Tensor]


def spectral_gain(
    function: Function, at: Tensor, *, iterations: int = 12, seed: int = 0, scale: float | None = None
) -> float:
    """``σ_max(J) ‖x‖ / ‖f(x)‖`` of ``function`` at ``at``, by power iteration; with ``scale``, ``σ_max(J) scale``.

    Power iteration comes from below; what is returned is enlarged by the last step's relative change.
    """
    v = torch.randn(at.shape, generator=torch.Generator().manual_seed(seed))
    before = now = 0.0
    relative = 1.0
    for _ in range(iterations):
        v = v / v.norm().clamp(min=1e-30)
        output, pushed = torch.func.jvp(function, (at,), (v,))  # type: ignore[misc]  # three values only with has_aux
        before, now = now, float(pushed.norm())
        if now == 0.0:
            return 0.0
        _, pull = torch.func.vjp(function, at)  # type: ignore[misc]
        (v,) = pull(pushed)
        relative = float(at.norm() / output.norm().clamp(min=1e-30))
    return now * (1 + abs(now - before) / now) * (relative if scale is None else scale)


def mean_gain(function: Function, at: Tensor, *, probes: int = 4, seed: int = 0, scale: float | None = None) -> float:
    """Root-mean-square factor by which ``function`` enlarges a relative error in a random direction at ``at``; with
    ``scale``, an absolute one times ``scale``."""
    generator = torch.Generator().manual_seed(seed)
    squares = []
    relative = 1.0
    for _ in range(probes):
        v = torch.randn(at.shape, generator=generator)
        output, pushed = torch.func.jvp(function, (at,), (v,))  # type: ignore[misc]  # three values only with has_aux
        relative = float(at.norm() / output.norm().clamp(min=1e-30))
        squares.append(float(pushed.square().sum() / v.square().sum()))
    return math.sqrt(sum(squares) / len(squares)) * (relative if scale is None else scale)
