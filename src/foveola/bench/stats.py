"""The few statistics that the tables are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000


def percentile(values: Sequence[float], per_cent: float) -> float:
    """The value below which ``per_cent`` of ``values`` lie, linear between neighbours. ``ValueError`` for none."""
    if not values:
        raise ValueError("there is no percentile of no values")
    return float(np.percentile(np.asarray(values, np.float64), per_cent))


def median(values: Sequence[float]) -> float:
    """The 50th percentile."""
    return percentile(values, 50)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer one took than the other, with the 95 % interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Rounded to what the measurement can tell."""
        return {"value": round(self.value, 3), "low": round(self.low, 3), "high": round(self.high, 3)}


def paired_ratio(longer: Sequence[float], shorter: Sequence[float], *, seed: int = 0) -> Ratio:
    """The ratio of the medians of two paired series, with a paired bootstrap interval (Efron 1979, percentiles).

    Pairs are drawn together, since both members saw the same picture at nearly the same time on the same machine:
    what disturbed one disturbed the other. Raises ``ValueError`` unless both have the same length of at least 1.
    """
    if len(longer) != len(shorter) or not longer:
        raise ValueError(f"paired series of {len(longer)} and {len(shorter)} values")
    pairs = np.stack([np.asarray(longer, np.float64), np.asarray(shorter, np.float64)])
    drawn = np.random.default_rng(seed).integers(0, pairs.shape[1], (RESAMPLES, pairs.shape[1]))
    above, below = np.median(pairs[:, drawn], axis=2)
    low, high = np.percentile(above / below, [2.5, 97.5])
    value = np.median(pairs[0]) / np.median(pairs[1])
    return Ratio(float(value), float(low), float(high))
