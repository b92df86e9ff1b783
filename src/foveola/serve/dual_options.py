"""The second engine: where it is, and when it is asked. Table ``[dual]``, ``FOVEOLA_DUAL_*``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SecondOptions:
    """Settings of the large engine; without ``bundle`` or ``url`` there is none.

    ``bundle`` is opened in this process, ``url`` is another server (``key_file`` holds its key). ``confidence`` is what
    ``foveola confidence`` made for the small model; ``threshold`` overrides its own. The rest is in
    ``foveola.engine.dual.DualOptions``. Raises ``ValueError`` that names the field.
    """

    bundle: Path | None = None
    url: str = ""
    key_file: Path | None = None
    confidence: Path | None = None
    threshold: float | None = None
    hedge_s: float = 5.0
    patience_s: float = 10.0
    failures_until_open: int = 3
    cooldown_s: float = 10.0

    def __post_init__(self) -> None:
        """Check what belongs together."""
        if self.bundle is not None and self.url:
            raise ValueError("`url` and `bundle` both name a large engine; set one of them.")
        if self.wanted and self.confidence is None:
            raise ValueError("`confidence` is missing; make one for the small model with `foveola confidence`.")

    @property
    def wanted(self) -> bool:
        """Whether there is a second engine."""
        return self.bundle is not None or bool(self.url)
