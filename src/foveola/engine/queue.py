"""The bounded queue in front of the engine's thread: who is let in, who is next, and when it is over.

A request is counted from the moment it is let in: first as one that is being prepared (its pictures are decoded in
other threads), then as one that waits, then as one that is active, until the engine's thread is done with it. Who waits
is served in the order of ``order.FairOrder``, and never waits for the preparation of another: a small picture overtakes
a huge one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from foveola.engine.order import FairOrder
from foveola.engine.sequence import Sequence
from foveola.exchange import Busy, Unavailable

STOPPING = "The engine is stopping; ask again in a moment, or ask another instance."
DEAD = "The engine has stopped after an internal failure and has to be started again; its log says what happened."
FIRST_GUESS_S = 0.5  # how long one answer takes, until some have been measured
RETRY_S = (1.0, 60.0)  # the least and the most that a client is told to wait


class RequestQueue:
    """Thread-safe. Readers ``enter``, preparing threads ``push``, the engine's thread ``pop``s and is ``done``."""

    def __init__(self, limit: int, slots: int, *, patience_s: float, clock: Callable[[], float]) -> None:
        """At most ``limit`` requests wait or are prepared, besides the ``slots`` that are computed at once."""
        self._limit = limit
        self._clock = clock
        self._slots = slots
        self._changed = threading.Condition()  # guards everything below
        self._preparing = 0
        self._waiting: FairOrder[Sequence] = FairOrder(patience_s)
        self._active = 0
        self._nudged = False
        self._closing = False
        self._ended = False
        self._dead = False
        self._answer_s = FIRST_GUESS_S

    # -- readers and preparing threads --------------------------------------------------------------------------

    def enter(self) -> None:
        """Count one more request. Raises ``Busy`` when the queue is full, ``Unavailable`` when it is closing."""
        with self._changed:
            self._refuse_if_over(self._closing)
            inside = self._inside()
            if inside >= self._limit + self._slots:
                wait_s = min(max(inside * self._answer_s / self._slots, RETRY_S[0]), RETRY_S[1])
                raise Busy(
                    f"{inside} requests are waiting or being answered, as many as are let in at once; "
                    f"ask again in {wait_s:.0f} s.",
                    retry_after_s=wait_s,
                )
            self._preparing += 1

    def leave(self) -> None:
        """A request that entered goes without being pushed: it was refused meanwhile, or its reader left."""
        with self._changed:
            self._preparing -= 1
            self._changed.notify_all()

    def push(self, sequence: Sequence) -> None:
        """A request that entered is prepared and waits for a slot. Raises ``Unavailable`` when all is over."""
        with self._changed:
            self._preparing -= 1
            self._changed.notify_all()
            self._refuse_if_over(self._ended)
            if not sequence.mailbox.cancelled:  # a reader cancels before it withdraws: one of the two finds it
                self._waiting.push(sequence)
                self._nudged = True  # for an engine that rests

    def withdraw(self, sequence: Sequence) -> None:
        """The reader left: the sequence leaves the queue if it still waits there, and never runs."""
        with self._changed:
            if self._waiting.remove(sequence):
                self._changed.notify_all()

    # -- the engine's thread ------------------------------------------------------------------------------------

    def pop(self, *, wait: bool, fits: Callable[[Sequence], bool] = lambda sequence: True) -> Sequence | None:
        """The next sequence that somebody still reads, where it ``fits``.

        None when there is none (``wait`` False), when the next one has to wait until there is room (those behind it
        wait with it: otherwise a large one would wait for ever), after a ``nudge``, and when all is over.
        """
        with self._changed:
            while not self._ended:
                while (sequence := self._waiting.best(self._clock())) is not None:
                    if not sequence.mailbox.cancelled and not fits(sequence):
                        return None
                    self._waiting.remove(sequence)
                    if not sequence.mailbox.cancelled:
                        self._active += 1
                        return sequence
                    self._changed.notify_all()
                if not wait or self._nudged:
                    self._nudged = False
                    return None
                self._changed.wait()
            return None

    def late(self, now: float) -> list[Sequence]:
        """Those whose deadline has passed while they waited; they wait no more."""
        with self._changed:
            late = self._waiting.remove_all(lambda sequence: sequence.due <= now)
            if late:
                self._changed.notify_all()
            return late

    def nudge(self) -> None:
        """Wake the engine's thread where it waits for a request: there is something else to do. From any thread."""
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Nothing can run now: wait for a nudge or a newcomer, at most so long."""
        with self._changed:
            if not (self._nudged or self._ended):
                self._changed.wait(seconds)
            self._nudged = False

    def done(self, seconds: float | None = None) -> None:
        """An active sequence is finished; ``seconds`` it took, where it came to its own end."""
        with self._changed:
            self._active -= 1
            if seconds is not None:
                self._answer_s += 0.2 * (seconds - self._answer_s)
            self._changed.notify_all()

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """From now on nobody is let in."""
        with self._changed:
            self._closing = True

    def drained(self, timeout_s: float) -> bool:
        """Wait until nobody is inside; False when that took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended or not self._inside(), timeout_s)

    def end(self, *, dead: bool = False) -> list[Sequence]:
        """It is over: ``pop`` returns None from now on. Returns those who still waited, to be told."""
        with self._changed:
            self._closing = self._ended = True
            self._dead = self._dead or dead
            left = self._waiting.remove_all(lambda sequence: True)
            self._changed.notify_all()
            return left

    def refusal(self) -> Unavailable:
        """What those are told for whom it is over."""
        return Unavailable(DEAD if self._dead else STOPPING)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._ended

    @property
    def closing(self) -> bool:
        """Whether nobody is let in any more."""
        return self._closing

    @property
    def queued(self) -> int:
        """Requests that wait or are being prepared."""
        return self._preparing + len(self._waiting)

    @property
    def active(self) -> int:
        """Requests that hold a slot."""
        return self._active

    @property
    def due(self) -> bool:
        """Whether the engine's thread has something to do."""
        return bool(self._active or self._waiting)

    def _inside(self) -> int:
        return self._preparing + len(self._waiting) + self._active

    def _refuse_if_over(self, over: bool) -> None:
        if over:
            raise self.refusal()
