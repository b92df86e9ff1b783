"""What is loaded, who is being served, is it alive: the one object of the server that changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from foveola.exchange import Answer, Busy, ImageUse, Piece, Refusal, Request, Unavailable
from foveola.observe.accuracy import Accuracy
from foveola.serve.log import event
from foveola.serve.options import ServeOptions
from foveola.serve.refusals import Loading, NoSuchModel

if TYPE_CHECKING:
    from foveola.drift.watch import DriftWatch
    from foveola.engine.seer import Seer
    from foveola.guard.live import Gateways
    from foveola.serve.watchers import VerdictLog

BUSY_RETRY_S = 1.0


class Counted(Protocol):
    """What a request would cost."""

    @property
    def prompt_tokens(self) -> int:
        """All of them, visual ones and the chat template's included."""

    @property
    def visual_tokens(self) -> int:
        """Those of the pictures."""

    @property
    def images(self) -> tuple[ImageUse, ...]:
        """What would become of each picture."""


Counting = Callable[[Request], Awaitable[Counted]]


class Patched(Protocol):
    """What a change of weights did."""

    @property
    def module_path(self) -> str:
        """The part of the model that changed; empty after a rollback."""

    @property
    def before(self) -> str:
        """Hash of the weights that served before."""

    @property
    def model_hash(self) -> str:
        """Hash of those that newcomers get."""

    @property
    def tensors(self) -> int:
        """How many tensors were replaced."""

    @property
    def graphs(self) -> tuple[str, ...]:
        """In which graphs."""

    @property
    def seconds(self) -> float:
        """How long it took, answers going on meanwhile."""

    @property
    def probe(self) -> Mapping[str, float]:
        """What the probe saw before the switch."""


class Patching(Protocol):
    """An engine whose weights can be replaced while it serves. Both methods block."""

    @property
    def model_hash(self) -> str:
        """Hash of the weights that newcomers get."""

    def replace_submodule(self, module_path: str, new_state_dict: Mapping[str, Any], strict: bool = True) -> Patched:
        """Other weights for a part of the model. Raises ``Invalid`` where they do not fit; nothing has changed then."""

    def rollback(self) -> Patched:
        """Back to the weights before the last patch. Raises ``Invalid`` where there was none."""


def _well() -> str | None:
    return None


def _nothing() -> None:
    return None


def _no_metrics() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded model, ready to answer.

    ``ailment`` says in a few words why the engine cannot answer, or None; ``close`` frees it (blocking);
    ``metrics`` is the text for ``/metrics`` in Prometheus' format; ``created`` is in Unix seconds. ``count`` tells what
    a request would cost, where the engine can; ``others`` are further names that may be asked for;
    ``gateways`` may register pictures; ``patching`` is the engine whose weights an admin may replace;
    ``see`` sees pictures for another service; ``selects``: fewer visual tokens of a picture will do; ``accuracy``
    takes labels of answers; ``drift`` watches the pictures, ``verdicts`` holds what the guards decided;
    ``traces``: spans are made.
    """

    name: str
    model_hash: str
    created: int
    answer: Answer
    ailment: Callable[[], str | None] = _well
    close: Callable[[], None] = _nothing
    metrics: Callable[[], bytes] = _no_metrics
    count: Counting | None = None
    others: Mapping[str, Answer] = field(default_factory=dict)
    gateways: Gateways | None = None
    patching: Patching | None = None
    see: Seer | None = None
    selects: bool = False
    accuracy: Accuracy = field(default_factory=Accuracy)
    drift: DriftWatch | None = None
    verdicts: VerdictLog | None = None
    traces: bool = False

    @property
    def weights(self) -> str:
        """Hash of the weights that a newcomer is answered with; a patch changes it."""
        return self.model_hash if self.patching is None else self.patching.model_hash

    def answer_of(self, model: str | None) -> Answer:
        """Who answers under this name; None: whoever answers here. Raises ``NoSuchModel``."""
        if model is None or model == self.name:
            return self.answer
        if model not in self.others:
            there = ", ".join([self.name, *self.others])
            raise NoSuchModel(f"There is no model of that name here; there is {there}.", field="model")
        return self.others[model]


Load = Callable[[], Served]


class Service:
    """Loads in a thread so that the port answers at once; admits, watches and drains."""

    def __init__(
        self,
        load: Load,
        options: ServeOptions,
        *,
        on_failure: Callable[[BaseException], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.draining = False
        self._load = load
        self._on_failure = on_failure
        self._clock = clock
        self._served: Served | None = None
        self._failed = False
        self._loading: asyncio.Task[None] | None = None
        self._requests = 0
        self._held_bytes = 0
        self._due = 0  # answers that have been asked for and are not finished
        self._beat = 0.0  # when the engine was last heard, or had nothing due

    def start(self) -> None:
        """Begin loading; needs a running event loop."""
        self._loading = asyncio.create_task(self._load_in_thread())

    async def stop(self) -> None:
        """Free the engine. Nothing is served afterwards."""
        self.draining = True
        if self._loading is not None:
            await asyncio.wait({self._loading})
        served, self._served = self._served, None
        if served is not None:
            await asyncio.to_thread(served.close)

    async def _load_in_thread(self) -> None:
        began = self._clock()
        try:
            served = await asyncio.to_thread(self._load)
        except Exception as error:  # noqa: BLE001 - told in the log, to whoever asks, and to ``on_failure``
            self._failed = True
            told = {"message": error.message} if isinstance(error, Refusal) else {}
            event(logging.ERROR, "load_failed", error=None if told else error, **told)
            if self._on_failure is not None:
                self._on_failure(error)
            return
        self._served = served
        event(
            logging.INFO,
            "ready",
            model=served.name,
            model_hash=served.model_hash,
            load_s=round(self._clock() - began, 3),
        )

    @property
    def loaded(self) -> Served | None:
        """The model, or None while there is none."""
        return self._served

    @property
    def served(self) -> Served:
        """The model. Raises ``Loading`` or ``Unavailable`` while there is none."""
        if self._served is not None:
            return self._served
        if self._failed or self.draining:
            raise Unavailable("The server has no model to answer with; ask whoever runs it to look at its log.")
        raise Loading("The model is being loaded; ask again in a second.")

    def check_ready(self) -> None:
        """Raise ``Loading`` or ``Unavailable`` unless a question asked now would be answered."""
        if self.draining:
            raise Unavailable("The server is stopping; ask another one.")
        ailment = self.served.ailment()
        if ailment is not None:
            raise Unavailable(f"The engine cannot answer ({ailment}); the server has to be restarted.")
        silence = self._clock() - self._beat
        if self._due and silence > self.options.stall_s:
            raise Unavailable(
                f"The engine has been silent for {silence:.0f} s while {self._due} answers are due; "
                "the server has to be restarted."
            )

    @contextmanager
    def admitted(self, body_bytes: int) -> Iterator[None]:
        """Hold a place, and memory for a body of ``body_bytes``, for one request. Raises ``Busy`` when full."""
        full = None
        if self._requests >= self.options.max_requests:
            full = f"{self._requests} requests are being served, as many as are taken at once"
        elif self._held_bytes + body_bytes > self.options.max_held_bytes:
            full = f"The {self._requests} requests being served fill the memory for bodies"
        if full is not None:
            raise Busy(f"{full}; ask again in a moment.", retry_after_s=BUSY_RETRY_S)
        self._requests += 1
        self._held_bytes += body_bytes
        try:
            yield
        finally:
            self._requests -= 1
            self._held_bytes -= body_bytes

    async def answer(self, answerer: Answer, request: Request) -> AsyncGenerator[Piece]:
        """What ``answerer`` says, with every sign of life noted. Closing the generator cancels the engine's work."""
        answer = answerer(request)
        if not self._due:
            self._beat = self._clock()
        self._due += 1
        try:
            async with aclosing(cast("AsyncGenerator[Piece]", answer)) as pieces:
                async for piece in pieces:
                    self._beat = self._clock()
                    yield piece
        finally:
            self._due -= 1
            self._beat = self._clock()
