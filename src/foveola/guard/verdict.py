"""What a guard decided about a request, for logs and metrics; and the route that a request came in on."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

ROUTE: ContextVar[str] = ContextVar("foveola_route", default="")
"""The path of the HTTP request that is being served, set at the door; empty where there is none (`foveola ask`).

A context variable, so that a guard's setting per route holds for every route there is, also for those that were added
by someone who never heard of guards.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``guard`` (allowlist, words, privacy, memory) came to ``outcome`` about the request ``id``.

    ``detail`` is plain data without anything that a user wrote or a picture shows.
    """

    guard: str
    outcome: str
    id: str
    route: str
    detail: dict[str, int | float | str] = field(default_factory=dict)


Tell = Callable[[Verdict], None]
"""Gets every verdict; runs on the event loop, must be quick and must not raise."""


def nobody(verdict: Verdict) -> None:
    """A ``Tell`` for those who do not listen."""
