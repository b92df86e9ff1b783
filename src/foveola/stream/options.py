"""How a stream is watched: frozen, checked once, units in the names."""

from __future__ import annotations

import math
from dataclasses import dataclass

WINDOWS = ("derived", "described")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Settings of one stream. Raises ``ValueError`` that names the field when a value is out of range.

    ``epsilon`` is by how many of 256 grey levels a block of a picture may differ and still be the same; where the model
    looked (the ``attended`` share of its attention), it is ``attended_strictness`` times smaller. ``audit_share`` of
    the reused frames are computed all the same, to know what reuse costs; after ``refresh_frames`` everything is.
    ``partial`` lets the vision graph run on changed parts alone, which is quicker and not the same.
    """

    fps: float = 10.0
    window: str = "derived"
    max_window: int = 8
    tolerance: float = 0.5  # of a patch, that the picture may move within the window (the derived rule's tau)
    epsilon: float = 3.0
    attended: float = 0.5
    attended_strictness: float = 2.0
    audit_share: float = 0.05
    refresh_frames: int = 300
    partial: bool = False
    reuse: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every range."""
        if self.window not in WINDOWS:
            raise ValueError(f"`window` is {self.window!r}; expected {' or '.join(WINDOWS)}.")
        for name in ("fps", "tolerance", "epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` is {value}; expected a number above 0.")
        for name in ("max_window", "refresh_frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected at least 1.")
        for name in ("audit_share", "attended"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected 0 to 1.")
        if not self.attended_strictness >= 1:
            raise ValueError(f"`attended_strictness` is {self.attended_strictness}; expected at least 1.")
