"""A certified alarm: betting against the reference (Vovk's simple jumper on conformal p-values).

While the frames are exchangeable with the reference the capital grows beyond 1/α with a probability of at most α, ever
(Ville 1939), whatever the distribution. It is slower than the charts, and it does not lean on a bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.drift.observation import Floats

BINS = 128
BETS = (-1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Jumper:
    """The capital on each of ``BETS``, in logarithms so that nothing overflows; ``jump`` is the share that changes its
    bet at every frame."""

    log_capital: tuple[float, float, float] = (-np.log(3), -np.log(3), -np.log(3))
    jump: float = 0.01

    @property
    def log_total(self) -> float:
        """Logarithm of the whole capital, 0 at the beginning."""
        return float(np.logaddexp.reduce(self.log_capital))

    def step(self, p: float) -> Jumper:
        """The bets after a p-value 0..1."""
        capital = np.asarray(self.log_capital)
        mixed = np.logaddexp(np.log1p(-self.jump) + capital, np.log(self.jump / 3) + self.log_total)
        bets = mixed + np.log1p(np.asarray(BETS) * (p - 0.5))
        return Jumper((float(bets[0]), float(bets[1]), float(bets[2])), self.jump)


class Ranks:
    """Conformal p-values of scores among the reference's and all that came before.

    The frames that came must count, too: against a reference that stays as it is, p-values share its chance errors,
    and a long bet wins on those. Scores are sorted into ``BINS`` bins, so that memory is bounded; ranks of bins, ties
    broken at random, are as valid as ranks of scores.
    """

    def __init__(self, reference: Floats, counts: NDArray[np.int64] | None = None) -> None:
        """``reference`` float64 [N] are scores without drift; ``counts`` int64 [BINS] go on from a former state."""
        self._edges = np.quantile(reference, np.linspace(0, 1, BINS + 1)[1:-1])
        self.counts = np.bincount(self._bin(reference), minlength=BINS) if counts is None else counts

    def _bin(self, score: Floats | float) -> NDArray[np.int64]:
        return np.searchsorted(self._edges, score, "right").astype(np.int64)

    def add(self, score: float, tie: float) -> float:
        """The p-value 0..1 of a new score, small where it is strange (high); then it belongs to what came before.
        ``tie`` is a random number 0..1."""
        own = int(self._bin(score))
        p = (int(self.counts[own + 1 :].sum()) + tie * (int(self.counts[own]) + 1)) / (int(self.counts.sum()) + 1)
        self.counts[own] += 1
        return p
