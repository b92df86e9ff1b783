"""What is agreed on before a federation starts, and how an update is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foveola.artifact.prompt import ROWS
from foveola.exchange import Invalid, Refusal
from foveola.learn.federate.server_step import SERVERS

MAX_BYTES = 120_000
"""No message is longer."""
MAX_WIDTH = 1_864
"""The widest prompt of which a snapshot, 4 bytes a number, still fits into one message."""
PATH = 20.0
"""How far an entry of the prompt can go in all, were every step of the server as large as its first."""
RULES = ("bounded", "centred", "mean", "trimmed", "median")


@dataclass(frozen=True, slots=True)
class FederationOptions:
    """Frozen before the first round.

    ``keep`` is the share of entries that travel, both ways. ``clip`` bounds the L2 norm of every update. ``rule`` is
    one of ``RULES``. ``quorum`` updates at least close a round. ``weight_cap`` bounds what a node claims to have
    seen, in medians. ``history`` is how many broadcasts are kept for nodes that missed rounds. ``server`` makes a step
    of what was agreed on (``server_step``), of size ``rate``, over ``horizon`` rounds. ``noise`` is that of
    differential privacy, in multiples of what one node can move (``privacy``); 0 is none.
    """

    rows: int = ROWS
    width: int = 768
    keep: float = 0.08
    clip: float = 1.0
    rule: str = "bounded"
    quorum: int = 2
    weight_cap: float = 2.0
    history: int = 16
    server: str = "adam"
    rate: float = 0.1
    horizon: int = 200
    noise: float = 0.0

    @classmethod
    def over(cls, rounds: int, **more: Any) -> FederationOptions:
        """For a federation that is over after ``rounds``: an entry goes as far in few rounds as in many."""
        return cls(horizon=rounds, rate=PATH / max(rounds, 1), **more)

    def __post_init__(self) -> None:
        if self.rows != ROWS or not 1 <= self.width <= MAX_WIDTH:
            raise Invalid(f"A prompt has {ROWS} rows of 1 to {MAX_WIDTH} numbers, not {self.rows} of {self.width}.")
        if not 0 < self.keep <= 1:
            raise Invalid(f"keep is {self.keep}; expected a share above 0 and at most 1, such as 0.08.", field="keep")
        if not self.clip > 0:
            raise Invalid(f"clip is {self.clip}; expected a norm above 0, such as 1.0.", field="clip")
        if self.rule not in RULES:
            raise Invalid(f"rule is {self.rule!r}; expected one of {', '.join(RULES)}.", field="rule")
        if self.server not in SERVERS:
            raise Invalid(f"server is {self.server!r}; expected one of {', '.join(SERVERS)}.", field="server")
        if not self.rate > 0 or self.horizon < 1:
            raise Invalid("rate is above 0, horizon at least 1.")
        if not 0 <= self.noise < 1e6:
            raise Invalid(f"noise is {self.noise}; expected 0, or a multiple such as 1.0.", field="noise")
        if self.noise and self.rule != "mean":
            raise Invalid(
                f"noise is promised for the rule mean only, and the rule is {self.rule}, which does not bound what one "
                "node moves. Set rule to mean, or noise to 0.",
                field="noise",
            )
        if self.quorum < 1 or self.history < 0 or not self.weight_cap >= 1:
            raise Invalid("quorum is at least 1, history at least 0, weight_cap at least 1.")


class Rejected(Refusal):
    """An update that does not count; ``reason`` is one word for metrics: malformed, oversize, shape, stranger, late,
    early, replayed or stale."""

    code = "update_rejected"
    status = 409

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
