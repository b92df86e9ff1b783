"""Visual features in the space of a Gaussian kernel, by random Fourier features (Rahimi and Recht 2007).

The distance between two means there is the maximum mean discrepancy (Gretton et al. 2012): it sees any change of the
distribution that shows at the scale of the kernel, not just a shift of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foveola.drift.observation import Floats

WAVES = 64
MOST_DIMENSIONS = 24


@dataclass(frozen=True, slots=True, eq=False)
class KernelMap:
    """``centre`` [H], ``axes`` [H, D]: features to D whitened principal components; ``waves`` [D, WAVES], ``phases``
    [WAVES]: those to the kernel's space."""

    centre: Floats
    axes: Floats
    waves: Floats
    phases: Floats

    @classmethod
    def fit(cls, features: Floats, seed: int = 0) -> KernelMap:
        """From reference features [N, H]. The kernel's width is the median distance of the whitened reference."""
        centre = features.mean(0)
        _, spread, axes = np.linalg.svd(features - centre, full_matrices=False)
        deviations = spread / np.sqrt(max(1, len(features) - 1))
        kept = min(
            MOST_DIMENSIONS, int((deviations > 1e-3 * max(deviations[0], 1e-12)).sum()), max(1, len(features) // 8)
        )
        scaled = axes[:kept].T / np.maximum(deviations[:kept], 1e-12)
        rng = np.random.default_rng(seed)
        white = (features - centre) @ scaled
        pairs = rng.integers(0, len(white), (2, 512))
        width = float(np.median(np.linalg.norm(white[pairs[0]] - white[pairs[1]], axis=1))) or 1.0
        waves = rng.standard_normal((kept, WAVES)) / width
        return cls(centre, scaled, waves, rng.uniform(0, 2 * np.pi, WAVES))

    def __call__(self, features: Floats) -> Floats:
        """[..., H] → [..., WAVES]; the inner product of two is the kernel's value, nearly."""
        white = (features - self.centre) @ self.axes
        turned: Floats = np.sqrt(2 / WAVES) * np.cos(white @ self.waves + self.phases)
        return turned
