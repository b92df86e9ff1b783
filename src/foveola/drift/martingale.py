"""A certified alarm: betting against the reference (Vovk's simple jumper on conformal p-values).

While the frames are exchangeable with the reference the capital grows beyond 1/α with a probability of at most α, ever
(Ville 1939), whatever the distribution. It is slower than the charts, and it does not lean on a bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foveola.drift.observation import Floats

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


def p_value(score: float, sorted_reference: Floats, tie: float) -> float:
    """The conformal p-value of ``score``: the share of reference scores [N] that are stranger; ``tie`` 0..1 is a
    random number that makes it uniform."""
    above = len(sorted_reference) - int(np.searchsorted(sorted_reference, score, "right"))
    equal = int(np.searchsorted(sorted_reference, score, "right") - np.searchsorted(sorted_reference, score, "left"))
    return (above + tie * (equal + 1)) / (len(sorted_reference) + 1)
