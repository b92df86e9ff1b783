"""What a way of asking over HTTP has to bring along: how a question is read, and how its answer is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest

from foveola.exchange import FinishReason, Piece, Refusal, Request, TokenLogprob, Usage
from foveola.serve.options import ServeOptions


@dataclass(frozen=True, slots=True)
class Told:
    """A whole answer, ready to be written down. ``name`` and ``model_hash`` are those of the model that gave it."""

    text: str
    finish: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...]
    name: str
    model_hash: str
    latency_s: float


class Telling(Protocol):
    """One question, read and understood, and the form that its answer will have."""

    @property
    def request(self) -> Request:
        """The question as the exchange takes it."""

    @property
    def model(self) -> str | None:
        """The model that is asked for by name; None: the one that answers here."""

    @property
    def stream(self) -> bool:
        """Whether the answer is told as it grows."""

    @property
    def low_detail(self) -> bool:
        """Whether fewer visual tokens than usual are good enough."""

    def whole(self, told: Told) -> dict[str, Any]:
        """The answer as one JSON object."""

    def delta(self, piece: Piece, model_hash: str, *, first: bool) -> bytes:
        """The event of one piece of a stream; may be empty."""

    def ending(self, told: Told) -> bytes:
        """The last bytes of a stream that went well."""

    def failure(self, refusal: Refusal) -> bytes:
        """The last bytes of a stream that did not."""


Read = Callable[[HttpRequest, ServeOptions, str], Awaitable[Telling]]
"""Reads a question from HTTP, under the id of its request. Raises refusals, and ``ClientDisconnect``."""
