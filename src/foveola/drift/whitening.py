"""A few numbers per frame in standard deviations from their class's mean, independent of one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foveola.drift.observation import Floats

LEAST_DEVIATION = 0.02  # of a logarithm: a change of two per cent is none, however steady the reference was
FARTHEST = 6.0  # one frame that is stranger than that counts as much


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """``means`` [C, T] per class, ``axes`` [T, T]: from differences to whitened ones."""

    means: Floats
    axes: Floats

    @classmethod
    def fit(cls, groups: Sequence[Floats]) -> Whitening:
        """From the values of each class [N, T], the first being all of them together. The spread is that within
        classes, so that another mix of classes does not widen it."""
        means = np.stack([group.mean(0) for group in groups])
        own = list(zip(groups, means, strict=True))[1:] or [(groups[0], means[0])]
        within = np.concatenate([group - mean for group, mean in own])
        variances, axes = np.linalg.eigh(np.cov(within.T))
        return cls(means, axes / np.sqrt(np.maximum(variances, LEAST_DEVIATION**2)))

    def moved(self, by: Floats) -> Whitening:
        """All means moved by whitened differences [T]."""
        return replace(self, means=self.means + by @ np.linalg.inv(self.axes))

    def __call__(self, values: Floats, row: int) -> Floats:
        """[T] → [T], from the mean of class ``row``, at most ``FARTHEST`` each way."""
        white: Floats = (values - self.means[row]) @ self.axes
        white = np.minimum(np.maximum(white, -FARTHEST), FARTHEST)
        return white
