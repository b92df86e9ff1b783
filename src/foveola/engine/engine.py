"""The engine as the rest of the system sees it: an ``Answer`` with a queue, a health and an end.

A request passes three places, and only the last is the engine's own thread:

    the reader: event loop or thread     a thread that prepares           the engine's thread (scheduler.py)
    let in ───────────────────────────▶ decode, resize, prompt ────────▶ queue ▶ vision ▶ prefill ▶ decode …
       ▲                                                                              │
       └─────────────────────────── pieces, through a Mailbox ◀───────────────────────┘
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.engine.draft import Draft
from foveola.engine.features import Select, keep_all
from foveola.engine.limits import check_request
from foveola.engine.mailbox import Mailbox
from foveola.engine.options import EngineOptions
from foveola.engine.patch import Patched, Patches
from foveola.engine.prepare import Preparation
from foveola.engine.prepared import Counts, Preparing
from foveola.engine.queue import RequestQueue
from foveola.engine.runner import OrtRunner, Runner
from foveola.engine.scheduler import FAILED, Scheduler
from foveola.engine.sequence import Guessing, Sequence, Timeline, Vocabulary
from foveola.engine.sessions import open_sessions
from foveola.engine.speculation import NO_GUESSES, RunCosts
from foveola.exchange import Piece, Request, Unavailable

log = logging.getLogger(__name__)

# How often the reader of a whole answer is shown, before its end, that the engine lives.
WHOLE_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the engine can answer, and how busy it is.

    ``alive``: its thread runs. ``stalled``: work is due and nothing has moved for ``stall_after_s``. ``idle_s``:
    seconds since the last step. ``queued`` requests wait or are being prepared, ``active`` ones hold a slot.
    ``why`` tells more of an engine that is dead, where that is known.
    """

    alive: bool
    closing: bool
    stalled: bool
    idle_s: float
    queued: int
    active: int
    why: str | None = None

    @property
    def ailment(self) -> str | None:
        """Why a request that comes now would not be answered, in a few words; None where it would."""
        if not self.alive:
            return self.why or "its thread has ended"
        if self.closing:
            return "it is closing"
        return f"it has not moved for {self.idle_s:.0f} s" if self.stalled else None


class _Ticket:
    """One request between its reader, the thread that prepares it and the engine's thread."""

    def __init__(self, request: Request, mailbox: Mailbox, timeline: Timeline) -> None:
        self.request = request
        self.mailbox = mailbox
        self.timeline = timeline
        self.preparing: Future[None] | None = None
        self.sequence: Sequence | None = None


class Engine:
    """Answers requests with one bundle. ``engine(request)`` is an ``Answer``; ``engine.pieces`` the same, blocking.

    Both raise before the first piece: ``Invalid``, ``BadImage``, ``TooLarge``, ``Unsupported`` or ``OverBudget`` for
    what is wrong with the request, ``Busy`` when the queue is full, ``Unavailable`` when the engine is closing or dead;
    the last may also come between pieces. Closing the iterator early frees the slot within one decode step.
    """

    def __init__(
        self,
        runner: Runner,
        prepare: Preparing,
        vocabulary: Vocabulary,
        options: EngineOptions,
        *,
        select: Select = keep_all,
        costs: RunCosts = NO_GUESSES,
        draft: Guessing | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Put an engine together from its parts; ``Engine.open`` is the usual way."""
        self.options = options
        self._prepare = prepare
        self._vocabulary = vocabulary
        self._max_length = runner.max_length
        self._clock = clock
        self._costs = costs if options.guess else NO_GUESSES
        self._queue = RequestQueue(options.queue_limit, runner.slots, patience_s=options.patience_s, clock=clock)
        self._scheduler = Scheduler(runner, self._queue, options, select=select, clock=clock, draft=draft)
        self._pool = ThreadPoolExecutor(options.prepare_threads, thread_name_prefix="foveola-prepare")
        self._thread = threading.Thread(target=self._scheduler.run, name="foveola-engine", daemon=True)
        self._model_hash = runner.version.model_hash
        self._patches: Patches | None = None

    @classmethod
    def open(
        cls,
        bundle: Bundle | Path,
        options: EngineOptions | None = None,
        *,
        select: Select = keep_all,
        preparation: Preparation | None = None,
        sees: bool = True,
        prompts_dir: Path | None = None,
        draft: Bundle | Path | None = None,
    ) -> Engine:
        """Load a bundle, warm it up and start; blocks until it can answer. Raises ``Damaged``.

        ``preparation`` may come from outside, with features of its own; where ``sees`` is False the vision graph is not
        even opened. ``prompts_dir`` holds visual prompts that requests may name (``prompts.py``). ``draft`` is a
        smaller model with the same tokens that guesses ahead (``draft.py``); ``Invalid`` where it cannot.
        """
        options = options or EngineOptions()
        bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(_runner, bundle, options, sees=sees)
            kept = options.picture_cache_mib * 1024 * 1024
            preparation = preparation or Preparation.open(bundle, kept_bytes=kept, prompts_dir=prompts_dir)
            runner = loading.result()
        costs = RunCosts.of(bundle.model.get("plan", {}))
        guessing = None if draft is None else Draft.open(draft, bundle, options)
        engine = cls(runner, preparation, preparation.vocabulary, options, select=select, costs=costs, draft=guessing)
        engine._patches = Patches(bundle, options, runner, engine.switch)
        engine._scheduler.on_return = engine._patches.gave_up
        engine.start()
        return engine

    def start(self) -> None:
        """Start the engine's thread."""
        self._thread.start()

    def close(self, drain_s: float = 10.0) -> bool:
        """Let nobody in any more, wait up to ``drain_s`` for the answers under way, then refuse the rest.

        Blocks; on an event loop call it through ``asyncio.to_thread``. True when nobody had to be refused.
        """
        self._queue.close()
        drained = self._queue.drained(drain_s)
        for sequence in self._queue.end():
            sequence.mailbox.fail(self._queue.refusal())
        self._pool.shutdown(wait=False)
        if self._thread.ident is not None:
            self._thread.join(drain_s)  # one step at most, unless it hangs in native code: then it stays a daemon
        return drained and not self._scheduler.dead

    @property
    def model_hash(self) -> str:
        """Of the weights that the next request gets; a patch changes it."""
        return self._model_hash if self._patches is None else self._patches.model_hash

    def replace_submodule(self, module_path: str, new_state_dict: Mapping[str, Any], strict: bool = True) -> Patched:
        """Serve from now on with other weights in a part of the model; see ``patch.Patches.replace``. Blocks."""
        return self._patchable.replace(module_path, new_state_dict, strict=strict)

    def rollback(self) -> Patched:
        """Serve with the weights before the last patch again. Raises ``Invalid`` where there was none. Blocks."""
        return self._patchable.rollback()

    def switch(self, runner: Runner) -> None:
        """Newcomers run on ``runner`` from the next step on; returns when they do. Who has begun ends as it began."""
        if not self._thread.is_alive():
            raise self._queue.refusal()
        self._scheduler.switch(runner).result()

    @property
    def _patchable(self) -> Patches:
        if self._patches is None:
            raise Unavailable(
                "This engine was put together from parts and has no bundle whose weights it could replace."
            )
        return self._patches

    def health(self) -> Health:
        """A snapshot; cheap, from any thread."""
        idle_s = max(0.0, self._clock() - self._scheduler.last_progress)
        return Health(
            alive=self._thread.is_alive() and not self._scheduler.dead,
            closing=self._queue.closing,
            stalled=self._queue.due and idle_s > self.options.stall_after_s,
            idle_s=idle_s,
            queued=self._queue.queued,
            active=self._queue.active,
            why=self._scheduler.why,
        )

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """Answer ``request`` piece by piece. The event loop only carries pieces; it computes nothing."""
        loop = asyncio.get_running_loop()
        something = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(something.set)
            except RuntimeError:  # the loop was closed under the reader: nobody is left to read
                mailbox.cancel()

        mailbox = Mailbox(wake, pause_s=WHOLE_PAUSE_S if request.whole else 0.0)
        ticket = self._let_in(request, mailbox)
        try:
            while True:
                await something.wait()
                something.clear()
                while (piece := mailbox.take()) is not None:
                    yield piece
                    if piece.finish is not None:
                        return
        finally:
            self._let_go(ticket)

    def pieces(self, request: Request) -> Iterator[Piece]:
        """Answer ``request`` piece by piece, blocking the calling thread; must not be called on an event loop."""
        something = threading.Event()
        mailbox = Mailbox(something.set, pause_s=WHOLE_PAUSE_S if request.whole else 0.0)
        ticket = self._let_in(request, mailbox)
        try:
            while True:
                something.wait()
                something.clear()
                while (piece := mailbox.take()) is not None:
                    yield piece
                    if piece.finish is not None:
                        return
        finally:
            self._let_go(ticket)

    async def count(self, request: Request) -> Counts:
        """The tokens that ``request`` would take, without running it. Raises what an answer to it would."""
        check_request(request, max_length=self._max_length)
        if self._queue.closing:
            raise self._queue.refusal()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._prepare.count, request)

    def _let_in(self, request: Request, mailbox: Mailbox) -> _Ticket:
        check_request(request, max_length=self._max_length)
        if self._thread.ident is None:
            raise Unavailable("The engine has not been started yet; ask again in a moment.")
        ticket = _Ticket(request, mailbox, Timeline(arrived=self._clock()))
        self._queue.enter()
        try:
            ticket.preparing = self._pool.submit(self._prepare_one, ticket)
        except RuntimeError:  # closed since
            self._queue.leave()
            raise self._queue.refusal() from None
        return ticket

    def _let_go(self, ticket: _Ticket) -> None:
        """The reader leaves, with the whole answer or without."""
        ticket.mailbox.cancel()
        if ticket.preparing is not None and ticket.preparing.cancel():
            self._queue.leave()
        elif ticket.sequence is not None:
            self._queue.withdraw(ticket.sequence)

    def _prepare_one(self, ticket: _Ticket) -> None:
        """In a thread that prepares: from encoded pictures to a sequence in the queue."""
        failure: Exception
        try:
            ticket.sequence = self._sequence_of(ticket)
        except Exception as error:  # noqa: BLE001 - raised again where it belongs, at the reader
            failure = error
        except BaseException:  # a panic of native code: never a reader that waits for ever
            log.exception("preparing a request failed")
            failure = Unavailable(FAILED)
        else:
            try:
                self._queue.push(ticket.sequence)
            except Unavailable as refusal:
                ticket.mailbox.fail(refusal)
            return
        self._queue.leave()
        ticket.mailbox.fail(failure)

    def _sequence_of(self, ticket: _Ticket) -> Sequence:
        timeline = ticket.timeline
        timeline.waited_s = self._clock() - timeline.arrived
        if self._queue.ended:
            raise self._queue.refusal()
        prepared = self._prepare(ticket.request)
        sequence = Sequence(
            ticket.request, prepared, ticket.mailbox, timeline, self._vocabulary, self._max_length, self._costs
        )
        timeline.submitted = self._clock()
        return sequence


def _runner(bundle: Bundle, options: EngineOptions, *, sees: bool) -> OrtRunner:
    return OrtRunner(bundle, options, None if sees else open_sessions(bundle, options, without=("vision",)))
