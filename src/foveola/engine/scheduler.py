"""The engine's own thread: schedule, run, postprocess, over and over.

Every step lets in who waits, then runs a piece of one prompt, and a token for everyone whose prompt is complete:
newcomers and those who run share every step, and neither waits for the other. Pictures are encoded meanwhile in threads
of their own. After each run it asks who has gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from foveola.engine.eyes import Eyes
from foveola.engine.features import Select
from foveola.engine.lane import Caches, Drawn, Lane, Work
from foveola.engine.options import EngineOptions
from foveola.engine.queue import RequestQueue
from foveola.engine.redzones import MemoryOverrun
from foveola.engine.runner import Runner
from foveola.engine.sequence import Guessing, Sequence
from foveola.exchange import Late, Refusal, Unavailable

log = logging.getLogger(__name__)

FAILED = (
    "The engine failed while it worked on this request. Ask again; if it stays so, try another picture or question."
)


EYE_PATIENCE_S = 0.05
"""Where all wait for pictures, so often it looks nevertheless who has gone."""


class Scheduler:
    """Owns the lanes. Everything but ``dead``, ``last_progress`` and ``switch`` is the engine's thread's."""

    def __init__(
        self,
        runner: Runner,
        queue: RequestQueue,
        options: EngineOptions,
        *,
        select: Select,
        clock: Callable[[], float],
        draft: Guessing | None = None,
    ) -> None:
        self._queue = queue
        self._options = options
        self._select = select
        self._draft = draft
        self._clock = clock
        self.caches = Caches(options)
        self._eyes = Eyes(options.eyes, queue.nudge)
        self._lanes = [self._lane(runner)]
        self._before: Runner | None = None
        self.on_return: Callable[[Runner], None] = lambda runner: None
        self._switching = threading.Lock()
        self._next_runner: tuple[Runner, Future[None]] | None = None
        self._failures_left = options.failures_until_dead
        self.dead = False
        self.why: str | None = None  # it is dead, where that is known
        self.last_progress = clock()

    def run(self) -> None:
        """Step until it is over. Whatever the reason, everyone who still waits is told."""
        try:
            while self.step():
                pass
        except BaseException as error:
            self.dead = True
            self.why = "its memory was overrun, and it is quarantined" if isinstance(error, MemoryOverrun) else None
            log.exception("the engine's thread dies")
        finally:
            self._eyes.close()
            held = [sequence for lane in self._lanes for sequence in lane.sequences]
            for sequence in [*held, *self._queue.end(dead=self.dead)]:
                sequence.mailbox.fail(self._queue.refusal())
            self._switched(self._queue.refusal())

    def step(self) -> bool:
        """schedule → run → postprocess. False when it is over."""
        self._switch_lanes()
        self._let_in()
        waits = True
        for lane in self._lanes:
            for work in lane.works():
                waits = False
                try:
                    drawn = work.run()
                except MemoryOverrun:
                    raise  # nothing that this engine holds can be trusted: its thread ends here
                except Exception as error:  # noqa: BLE001 - told to the readers and to the log
                    self._fail(lane, work, error)
                else:
                    self._failures_left = self._options.failures_until_dead
                    self._postprocess(lane, drawn)
                self._part_with_the_gone()
                self.last_progress = self._clock()
                if self.dead or self._queue.ended:
                    return False
        if waits and any(lane.sequences for lane in self._lanes):  # all for the eyes
            self._queue.rest(EYE_PATIENCE_S)
            self._part_with_the_gone()
        return not self._queue.ended

    def switch(self, runner: Runner) -> Future[None]:
        """From the next step on newcomers run on ``runner``; the future is done when they do. From any thread.

        Where the first who run on it fail, before anybody got a token, newcomers get the weights before again, and
        ``on_return`` is told.
        """
        done: Future[None] = Future()
        with self._switching:
            if self._next_runner is not None:
                self._next_runner[1].set_exception(Unavailable("Another switch came after this one and replaced it."))
            self._next_runner = (runner, done)
        self._queue.nudge()
        return done

    # -- schedule -----------------------------------------------------------------------------------------------

    def _part_with_the_gone(self) -> None:
        """Those whose reader left, and those whose deadline has passed."""
        now = self._clock()
        for lane in self._lanes:
            for sequence in lane.sequences:
                if sequence.mailbox.cancelled:
                    self._release(lane, sequence)
                elif sequence.due <= now:
                    self._drop(lane, sequence, _late(sequence))
        for sequence in self._queue.late(now):
            sequence.mailbox.fail(_late(sequence))

    def _switch_lanes(self) -> None:
        """The last lane takes newcomers; those before it end what they have begun."""
        with self._switching:
            waiting, self._next_runner = self._next_runner, None
        if waiting is not None:
            runner, done = waiting
            self._before = self._lanes[-1].runner
            self._open_lane(runner)
            done.set_result(None)
        self._lanes = [lane for lane in self._lanes[:-1] if lane.sequences] + self._lanes[-1:]

    def _let_in(self) -> None:
        lane = self._lanes[-1]
        while lane.open:
            idle = not any(other.sequences for other in self._lanes)
            newcomer = self._queue.pop(wait=idle, fits=lane.fits)
            if newcomer is None:
                return
            if idle:
                self.last_progress = self._clock()  # an idle engine has not stalled
            if newcomer.due <= self._clock():
                self._queue.done()
                newcomer.mailbox.fail(_late(newcomer))
                continue
            lane.take(newcomer)

    # -- postprocess --------------------------------------------------------------------------------------------

    def _postprocess(self, lane: Lane, drawn: list[Drawn]) -> None:
        """Draw the tokens, release who has finished, pass the text on.

        In this order: who has read the last piece and asks again finds the slot free.
        """
        now = self._clock()
        for sequence, logits, guesses in drawn:
            try:
                piece = sequence.draw(logits, guesses, now)
            except Exception as error:  # noqa: BLE001 - told to the reader and to the log
                self._drop(lane, sequence, error)
                continue
            lane.proven = True
            if sequence.finished:
                self._release(lane, sequence, now - sequence.timeline.submitted)
            if piece is not None:
                sequence.mailbox.put(piece)

    def _release(self, lane: Lane, sequence: Sequence, seconds: float | None = None) -> None:
        lane.release(sequence)
        self._queue.done(seconds)

    def _fail(self, lane: Lane, work: Work, error: Exception) -> None:
        """A run that fails is the failure of its requests; one after the other, they are the engine's."""
        for sequence in work.sequences:
            self._drop(lane, sequence, error)
        self._failures_left -= 1
        self.dead = self._failures_left == 0

    def _drop(self, lane: Lane, sequence: Sequence, error: Exception) -> None:
        """Give a sequence up; its reader is told, and the log knows more than the reader."""
        self._release(lane, sequence)
        if isinstance(error, Refusal):
            sequence.mailbox.fail(error)
        else:
            log.error("a request failed in the engine", exc_info=error)
            sequence.mailbox.fail(Unavailable(FAILED))
        if isinstance(error, Unavailable) or not isinstance(error, Refusal):
            self._return_from(lane)

    def _return_from(self, lane: Lane) -> None:
        """New weights with which nothing has worked yet are given up."""
        if lane.proven or self._before is None or lane is not self._lanes[-1]:
            return
        log.error("the patched weights fail; newcomers get those before again")
        self._open_lane(self._before)
        self._before = None
        self._failures_left = self._options.failures_until_dead
        self.on_return(lane.runner)

    def _switched(self, refusal: Refusal) -> None:
        with self._switching:
            if self._next_runner is not None:
                self._next_runner[1].set_exception(refusal)

    def _open_lane(self, runner: Runner) -> None:
        """Newcomers go to ``runner``. Where it still ends what it began, they join: its KV rows are one lane's."""
        lane = next((lane for lane in self._lanes if lane.runner is runner), None)
        if lane is not None:
            self._lanes.remove(lane)
        self._lanes.append(lane or self._lane(runner))

    def _lane(self, runner: Runner) -> Lane:
        return Lane(
            runner,
            self.caches,
            self._options,
            eyes=self._eyes,
            draft=self._draft,
            select=self._select,
            clock=self._clock,
        )


def _late(sequence: Sequence) -> Late:
    return Late(
        f"The answer was not complete after {sequence.deadline_s:g} s, the deadline that came with the request. "
        "Allow more time, ask for fewer tokens, or ask again when fewer others do.",
        field="deadline_s",
    )
