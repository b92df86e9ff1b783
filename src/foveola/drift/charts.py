"""Two control charts, each for a whole series at once (for bootstrapping) and step by step (for watching).

``Cusum`` (Page 1954) sums what exceeds the usual; ``MeanChart`` is the multivariate EWMA of Lowry et al. (1992) in the
kernel's space: how far the moving mean lies from the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foveola.drift.observation import Floats


@dataclass(frozen=True, slots=True)
class Cusum:
    """``allowance`` is half of the shift, in standard deviations of the score, that is to be found fastest."""

    allowance: float = 0.35

    def step(self, sum_: float, score: float) -> float:
        """The sum after one standardised score."""
        return max(0.0, sum_ + min(score, 6.0) - self.allowance)

    def peaks(self, scores: Floats) -> Floats:
        """[runs, steps] → the greatest sum of each run [runs]."""
        sum_ = peak = np.zeros(len(scores))
        for column in np.minimum(scores, 6.0).T:
            sum_ = np.maximum(0.0, sum_ + column - self.allowance)
            peak = np.maximum(peak, sum_)
        return peak


@dataclass(frozen=True, slots=True)
class MeanChart:
    """``memory``: the weight of the newest frame in the moving mean."""

    memory: float = 0.04

    def step(self, mean: Floats, residual: Floats) -> Floats:
        """The moving mean [WAVES] after one residual."""
        return mean + self.memory * (residual - mean)

    def distance(self, mean: Floats) -> float:
        """How far the moving mean is from the reference, in units in which independent frames give about 1."""
        return float(mean @ mean) * (2 - self.memory) / self.memory

    def peaks(self, residuals: Floats, order: np.ndarray) -> Floats:
        """The greatest distance of each run: ``residuals`` [N, WAVES] taken in the ``order`` int [runs, steps]."""
        mean, peak = np.zeros((len(order), residuals.shape[1])), np.zeros(len(order))
        for column in order.T:
            mean += self.memory * (residuals[column] - mean)
            peak = np.maximum(peak, (mean**2).sum(1))
        return peak * (2 - self.memory) / self.memory


def blocks(rng: np.random.Generator, length: int, block: int, runs: int, steps: int) -> np.ndarray:
    """Indices int [runs, steps] into a series of ``length``: blocks of ``block`` neighbours, drawn with replacement
    (Künsch 1989), so that what is drawn depends on its neighbours as the series does."""
    block = min(block, length)
    starts = rng.integers(0, length - block + 1, (runs, -(-steps // block)))
    return (starts[:, :, None] + np.arange(block)).reshape(runs, -1)[:, :steps]


@dataclass(frozen=True, slots=True)
class Peaks:
    """The distribution of a chart's greatest value over ``horizon`` frames without drift: a Gumbel distribution of
    that ``place`` and ``scale``, which reaches beyond what was drawn."""

    place: float
    scale: float
    horizon: int

    @classmethod
    def fit(cls, peaks: Floats, horizon: int) -> Peaks:
        """By moments."""
        scale = max(float(peaks.std()) * np.sqrt(6) / np.pi, 1e-9)
        return cls(float(peaks.mean()) - 0.5772156649 * scale, float(scale), horizon)

    def threshold(self, alarms_per_frame: float) -> float:
        """What is exceeded so often, in false alarms per frame."""
        expected = alarms_per_frame * self.horizon  # alarms in a horizon: a Poisson mean
        return float(self.place - self.scale * np.log(expected))


def memory_of(scores: Floats, most: int = 50) -> int:
    """How many frames apart scores hardly depend on one another: the first lag with an autocorrelation below 0.2."""
    centred = scores - scores.mean()
    power = float((centred**2).mean())
    if power <= 0:
        return 1
    for lag in range(1, min(most, len(scores) // 4)):
        if float((centred[lag:] * centred[:-lag]).mean()) / power < 0.2:
            return lag
    return max(1, min(most, len(scores) // 4))
