"""A circuit breaker: an engine that keeps failing is left alone for a while, then tried with one request.

    closed ──failures in a row──▶ open ──cooldown──▶ half-open ──success──▶ closed
                                   ▲                     └──failure──▶ open

(Nygard, Release It!, 2007.) Used on one event loop; not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

State = Literal["closed", "open", "half-open"]


class Breaker:
    """Says whether an engine may be asked, and learns from what became of it."""

    def __init__(self, failures_until_open: int, cooldown_s: float, clock: Callable[[], float]) -> None:
        self._allowed = failures_until_open
        self._cooldown_s = cooldown_s
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self._probing = False

    @property
    def state(self) -> State:
        """Where it stands now."""
        if self._opened is None:
            return "closed"
        return "half-open" if self._clock() - self._opened >= self._cooldown_s else "open"

    def allow(self) -> bool:
        """Whether a request may go there now; while half-open, one at a time. Tell what becomes of it."""
        state = self.state
        if state == "closed":
            return True
        if state == "open" or self._probing:
            return False
        self._probing = True
        return True

    def success(self) -> None:
        """It answered."""
        self._failures, self._opened, self._probing = 0, None, False

    def failure(self) -> None:
        """It failed, or took too long."""
        self._failures += 1
        self._probing = False
        if self._opened is not None or self._failures >= self._allowed:
            self._opened = self._clock()

    def forget(self) -> None:
        """Nothing was learnt: the request was cancelled, or turned away by a full queue."""
        self._probing = False
