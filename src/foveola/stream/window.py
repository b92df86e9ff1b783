"""How many frames back a feature may come from, given how fast the camera turns.

``described`` is the rule of the system's description: 8 frames, and 8 x 0.4 of them (3) above 0.8 rad/s. ``derived``
follows from geometry: a point moves by phi = f |omega| / fps pixels per frame, so that after tau x patch / phi frames
it has moved by tau patches.
"""

from __future__ import annotations

import math

DESCRIBED_FRAMES = 8
DESCRIBED_SHARE = 0.4
DESCRIBED_OMEGA = 0.8  # rad/s


def pixels_per_frame(omega: float, focal_px: float, fps: float) -> float:
    """phi: how far a point near the axis moves between two frames, in pixels, at ``omega`` rad/s."""
    return focal_px * abs(omega) / fps


def described_window(omega: float) -> int:
    """8 frames up to 0.8 rad/s, 3 above."""
    return DESCRIBED_FRAMES if abs(omega) <= DESCRIBED_OMEGA else int(DESCRIBED_FRAMES * DESCRIBED_SHARE)


def derived_window(phi: float, patch_px: float, *, tolerance: float, max_window: int) -> int:
    """clip(floor(tau patch / phi), 1, max_window)."""
    if phi <= 0 or not math.isfinite(phi):
        return max_window if phi <= 0 else 1
    return max(1, min(max_window, math.floor(tolerance * patch_px / phi)))
