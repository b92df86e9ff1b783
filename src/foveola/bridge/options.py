"""What the bridge can be told, with units in the names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
INTENTS, CALIBRATION = _HERE / "intents.toml", _HERE / "calibration.json"


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """Settings of the bridge: table ``[bridge]`` of foveola.toml, ``FOVEOLA_BRIDGE_*``, flags.

    Raises ``ValueError`` that names the field when a value is out of range.
    """

    sources: Path | None = None  # None: there is no bridge
    intents: Path = INTENTS
    calibration: Path = CALIBRATION
    data: Path = Path("bridge-data")  # outbox, reviews, audit log
    bootstrap: str = ""  # address of Kafka; empty: commands wait in the outbox
    review_expire_s: float = 8 * 3600.0
    claim_s: float = 300.0

    def __post_init__(self) -> None:
        """Check every range."""
        for name in ("review_expire_s", "claim_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected a number of seconds above 0.")
