"""The engine's own thread: schedule, run, postprocess, over and over.

A request that waits goes before further tokens of those that run, so that its first token comes soon. Every step
asks first who has gone: a cancelled request loses its slot within one step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foveola.engine.features import Floats, Select, evidence_of, place
from foveola.engine.queue import RequestQueue
from foveola.engine.runner import Runner
from foveola.engine.sequence import Sequence
from foveola.engine.slots import Slots
from foveola.exchange import Refusal, Unavailable

log = logging.getLogger(__name__)

FAILED = (
    "The engine failed while it worked on this request. Ask again; if it stays so, try another picture or question."
)


@dataclass(frozen=True, slots=True)
class Work:
    """What one step runs: the whole prompt of one sequence, or one token of each of several."""

    sequences: tuple[Sequence, ...]
    prefill: bool


class Scheduler:
    """Owns the runner and the KV slots. Everything but ``dead`` and ``last_progress`` is the engine's thread's."""

    def __init__(
        self,
        runner: Runner,
        queue: RequestQueue,
        *,
        select: Select,
        clock: Callable[[], float],
        failures_until_dead: int,
    ) -> None:
        self._runner = runner
        self._queue = queue
        self._select = select
        self._clock = clock
        self._slots: Slots[Sequence] = Slots(runner.slots)
        self._failures_left = self._failures_allowed = failures_until_dead
        self.dead = False
        self.last_progress = clock()

    def run(self) -> None:
        """Step until it is over. Whatever the reason, everyone who still waits is told."""
        try:
            while self.step():
                pass
        except BaseException:
            self.dead = True
            log.exception("the engine's thread dies")
        finally:
            for sequence in [*self._slots.owners, *self._queue.end(dead=self.dead)]:
                sequence.mailbox.fail(self._queue.refusal())

    def step(self) -> bool:
        """schedule → run → postprocess. False when it is over."""
        work = self._schedule()
        if work is None:
            return False
        try:
            logits = self._run(work)
        except Exception as error:  # noqa: BLE001 - told to the readers and to the log
            self._fail(work, error)
        else:
            self._failures_left = self._failures_allowed
            self._postprocess(work, logits)
        self.last_progress = self._clock()
        return not self.dead

    def _schedule(self) -> Work | None:
        """Release who has gone, then take in who waits, then go on with those who run."""
        for sequence in self._slots.owners:
            if sequence.mailbox.cancelled:
                self._release(sequence)
        if self._slots.free:
            newcomer = self._queue.pop(wait=not self._slots.owners)
            if newcomer is not None:
                self.last_progress = self._clock()  # an idle engine has not stalled
                self._slots.acquire(newcomer)
                return Work((newcomer,), prefill=True)
        if self._queue.ended:
            return None
        return Work(self._slots.owners, prefill=False)

    def _run(self, work: Work) -> Floats:
        """Logits float32 ``[len(work.sequences), vocab]``."""
        if work.prefill:
            return self._prefill(work.sequences[0])
        logits = self._runner.decode(
            [sequence.token for sequence in work.sequences],
            [sequence.position for sequence in work.sequences],
            [sequence.length for sequence in work.sequences],
        )
        for sequence in work.sequences:
            sequence.decoded()
        return logits

    def _prefill(self, sequence: Sequence) -> Floats:
        prepared, timeline = sequence.prepared, sequence.timeline
        started = self._clock()
        timeline.waited_s += started - timeline.submitted
        selected = None
        if prepared.packed is not None:
            selected = self._select(self._runner.encode(prepared.packed), prepared.grids)
        encoded = self._clock()
        chunk = place(prepared.ids, prepared.positions, prepared.visual, selected)
        logits, attention = self._runner.prefill(self._slots.row(sequence), chunk)
        sequence.prefilled(chunk.start + len(chunk.ids))
        if selected is not None:
            sequence.evidence = evidence_of(attention, chunk, selected.kept, prepared.grids)
        timeline.vision_s = encoded - started
        timeline.prefill_s = self._clock() - encoded
        return logits[np.newaxis]

    def _postprocess(self, work: Work, logits: Floats) -> None:
        """Draw the tokens, release who has finished, pass the text on.

        In this order: who has read the last piece and asks again finds the slot free.
        """
        now = self._clock()
        for sequence, row in zip(work.sequences, logits, strict=True):
            try:
                piece = sequence.accept(row, now)
            except Exception as error:  # noqa: BLE001 - told to the reader and to the log
                self._drop(sequence, error)
                continue
            if sequence.finished:
                self._release(sequence, now - sequence.timeline.submitted)
            if piece is not None:
                sequence.mailbox.put(piece)

    def _release(self, sequence: Sequence, seconds: float | None = None) -> None:
        move = self._slots.release(sequence)
        if move is not None:
            self._runner.move(move, self._slots.owners[move.target].length)
        self._queue.done(seconds)

    def _fail(self, work: Work, error: Exception) -> None:
        """A run that fails is the failure of its requests; one after the other, they are the engine's."""
        for sequence in work.sequences:
            self._drop(sequence, error)
        self._failures_left -= 1
        self.dead = self._failures_left == 0

    def _drop(self, sequence: Sequence, error: Exception) -> None:
        """Give a sequence up; its reader is told, and the log knows more than the reader."""
        self._release(sequence)
        if isinstance(error, Refusal):
            sequence.mailbox.fail(error)
        else:
            log.error("a request failed in the engine", exc_info=error)
            sequence.mailbox.fail(Unavailable(FAILED))
