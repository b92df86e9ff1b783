"""What a chip is to the rewriter: rules, the operators it has, the numbers that its latency is modelled with."""

from __future__ import annotations

from dataclasses import dataclass

from foveola.lower.rewrite.conditions import Condition
from foveola.lower.rewrite.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that becomes the fused operator ``kernel`` where every condition holds.

    That every inner value has one consumer, inside, is asked of each. ``speedup``: how much faster the kernel computes
    than its parts (Winograd multiplies less), for the model only.
    """

    kernel: str
    pattern: Pattern
    conditions: tuple[Condition, ...] = ()
    speedup: float = 1.0


@dataclass(frozen=True, slots=True)
class Chip:
    """``flops_per_s`` and ``bytes_per_s`` are peaks; ``launch_s`` is assumed; ``channels`` is the alignment.

    ``operators`` None: all. Else what runs on the chip up to the first operator that is not among them; everything
    after that one runs on its host, which computes ``host_flops_per_s`` (assumed).
    """

    name: str
    title: str
    rules: tuple[Rule, ...]
    flops_per_s: float
    bytes_per_s: float
    launch_s: float
    channels: int
    numbers_from: str
    operators: frozenset[str] | None = None
    host_flops_per_s: float = 0.0

    @property
    def domain(self) -> str:
        """The domain of its fused operators."""
        return f"foveola.{self.name}"
