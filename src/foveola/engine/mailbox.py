"""The one thing that the engine's thread and a reader share: pieces go one way, cancellation the other.

Pieces that the reader has not fetched yet are merged, and it is woken once for all of them. So a slow reader costs
the engine nothing, and memory is bounded by the length of one answer. A reader that wants the answer as a whole is
woken for its end: each wake-up in between would take the interpreter's lock from the engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from foveola.exchange import Piece


class Mailbox:
    """One answer on its way to one reader."""

    def __init__(
        self, wake: Callable[[], None], *, pause_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``wake`` is called on the engine's thread when there is something to fetch; it must not block. Until the
        answer ends, ``pause_s`` seconds pass between two of its calls."""
        self._wake = wake
        self._pause_s, self._clock = pause_s, clock
        self._wake_at = clock() + pause_s
        self._lock = threading.Lock()
        self._piece: Piece | None = None
        self._error: Exception | None = None
        self._woken = False
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the reader has gone. The engine asks before every step."""
        return self._cancelled

    def cancel(self) -> None:
        """The reader goes: nothing more will be fetched. From any thread, any number of times."""
        self._cancelled = True

    def put(self, piece: Piece) -> None:
        """The engine adds a piece."""
        with self._lock:
            self._piece = piece if self._piece is None else merged(self._piece, piece)
            now = self._clock()
            if piece.finish is None and now < self._wake_at:
                return
            self._wake_at = now + self._pause_s
            wake, self._woken = not self._woken, True
        if wake:
            self._wake()

    def fail(self, error: Exception) -> None:
        """There will be no more; the reader gets what was put before, then ``error`` is raised there."""
        with self._lock:
            self._error = error
            wake, self._woken = not self._woken, True
        if wake:
            self._wake()

    def take(self) -> Piece | None:
        """Fetch all that has come since the last time, or None. Raises the error once the pieces before are taken."""
        with self._lock:
            piece, self._piece = self._piece, None
            self._woken = self._error is not None  # the error is fetched without another wake-up
            if piece is None and self._error is not None:
                raise self._error
            return piece


def merged(first: Piece, second: Piece) -> Piece:
    """Two pieces in a row as one."""
    return Piece(
        text=first.text + second.text,
        tokens=first.tokens + second.tokens,
        logprob=first.logprob + second.logprob,
        finish=second.finish,
        usage=second.usage,
        logprobs=first.logprobs + second.logprobs,
    )
