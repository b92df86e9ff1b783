"""What the drift watch of a server can be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """Settings: table ``[drift]`` of foveola.toml, ``FOVEOLA_DRIFT_*``. Without ``reference`` nothing is watched.

    Raises ``ValueError`` that names the field when a value is out of range.
    """

    reference: Path | None = None  # what `foveola drift calibrate` wrote
    state: Path | None = None  # where the charts are kept, so that a restart forgets nothing
    false_alarms: float = 1.0  # expected per 10 000 frames while nothing changes
    cameras: int = 1  # how many cameras there are: the certified alarm is corrected for their number
    webhook: str = ""  # told every alarm: POST of JSON with a picture; http or https

    def __post_init__(self) -> None:
        """Check every range."""
        if not (math.isfinite(self.false_alarms) and 0 < self.false_alarms <= 1000):
            raise ValueError(f"`false_alarms` is {self.false_alarms}; expected above 0 and at most 1000.")
        if self.cameras < 1:
            raise ValueError(f"`cameras` is {self.cameras}; expected at least 1.")
        if self.webhook and not self.webhook.startswith(("http://", "https://")):
            raise ValueError(
                f"`webhook` is {self.webhook!r}; expected an address that begins with http:// or https://."
            )
