"""Sparse updates with error feedback: what is not sent now is sent later.

u = Δ + e; C(u) keeps the largest entries in 8 bits; e ← u − C(u) (Stich, Cordonnier, Jaggi: "Sparsified SGD with
memory", NeurIPS 2018; Karimireddy et al.: "Error feedback fixes SignSGD", ICML 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foveola.learn.federate.index import Positions

Floats = NDArray[np.float32]
LEVELS = 127


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """A sparse array: ``positions`` int64 ``[k]`` rising, ``levels`` int8 ``[k]`` in ±1..127, times ``scale``."""

    size: int
    positions: Positions
    levels: NDArray[np.int8]
    scale: float

    def dense(self) -> Floats:
        """float32 ``[size]``."""
        out = np.zeros(self.size, np.float32)
        out[self.positions] = self.levels * np.float32(self.scale)
        return out

    @property
    def norm(self) -> float:
        """L2 norm."""
        return float(np.linalg.norm(self.levels.astype(np.float64))) * self.scale


def compress(values: Floats, keep: float, clip: float | None = None) -> Sparse:
    """The largest ``keep`` of the entries of ``values`` ``[size]``, in 8 bits; ``clip`` bounds the norm of the result.

    Raises ValueError where a value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError("an update holds finite numbers only")
    count = min(max(1, round(len(values) * keep)), len(values))
    magnitude = np.abs(values)
    positions = np.sort(np.argpartition(magnitude, len(values) - count)[len(values) - count :])
    peak = float(magnitude[positions].max())
    if peak < 1e-30:  # nothing to say
        return Sparse(len(values), np.zeros(0, np.int64), np.zeros(0, np.int8), 0.0)
    levels = np.rint(values[positions].astype(np.float64) * (LEVELS / peak)).astype(np.int8)
    told = levels != 0
    sparse = Sparse(len(values), positions[told].astype(np.int64), levels[told], float(np.float32(peak / LEVELS)))
    if clip is not None and sparse.norm > clip:
        # Just below the bound: float32 may round up.
        sparse = replace(sparse, scale=float(np.float32(sparse.scale * (clip / sparse.norm) * (1 - 1e-6))))
    return sparse


class Feedback:
    """What one sender has not been able to say yet. ``residual`` float32 ``[size]``."""

    def __init__(self, size: int, residual: Floats | None = None) -> None:
        self.residual = np.zeros(size, np.float32) if residual is None else residual.astype(np.float32)

    def encode(self, delta: Floats, keep: float, clip: float | None = None) -> Sparse:
        """Compress ``delta`` and what is left over from before; keep what is left over now."""
        wanted = self.residual + delta.reshape(-1)
        sparse = compress(wanted, keep, clip)
        self.residual = wanted - sparse.dense()
        return sparse

    def take_back(self, told: Floats) -> None:
        """The update, float32 ``[size]``, did not count (late, or lost): it is said again with the next one."""
        self.residual = self.residual + told
