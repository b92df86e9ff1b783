"""What ``foveola bench`` can be told: frozen, checked once, units in the names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foveola.exchange import Invalid

RIVALS = ("transformers",)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """One benchmark run. Raises ``Invalid`` naming the field that is out of range.

    ``requests`` are measured per contender and per entry of ``concurrency`` (requests at once), after ``warmup``
    unmeasured ones. Everything runs on the first ``cores`` cores that this process may use. ``checkpoint`` holds the
    weights that the rivals load; ``pictures`` a folder to ask about besides the generated ones.
    """

    bundle: Path
    cores: int
    checkpoint: Path | None = None
    pictures: Path | None = None
    requests: int = 100
    max_tokens: int = 32
    concurrency: tuple[int, ...] = (1, 4)
    rivals: tuple[str, ...] = RIVALS
    warmup: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every range."""
        for name in ("cores", "requests", "max_tokens", "warmup"):
            if getattr(self, name) < 1:
                raise Invalid(f"{name} is {getattr(self, name)}; expected at least 1.", field=name)
        if not self.concurrency or min(self.concurrency) < 1:
            raise Invalid("concurrency needs whole numbers of at least 1, such as 1,4.", field="concurrency")
        if len(set(self.concurrency)) < len(self.concurrency):
            raise Invalid("concurrency names a number twice; name each once.", field="concurrency")
        for rival in self.rivals:
            if rival not in RIVALS:
                raise Invalid(f"{rival!r} is no rival; there is {', '.join(RIVALS)}, or none.", field="rivals")
