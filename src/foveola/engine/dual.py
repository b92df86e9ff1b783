"""Two engines, one answer: the small one first, the large one where the small is unsure, slow, or dead.

    small ──confident──▶ its answer
      │ unsure ─────────▶ large ──▶ its answer; where the large fails or is late: the small one's, marked
      │ late ───────────▶ large beside it, who is first is heard        (hedge)
      │ fails ──────────▶ large                                          (fail-over)
      └ breaker open ───▶ large

What is wrong with the request itself is refused by whoever sees it first. The reply's ``route`` says what happened.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import cast

from foveola.engine.dual_breaker import Breaker
from foveola.exchange import (
    Answer,
    BadImage,
    BadRequest,
    Busy,
    Invalid,
    OverBudget,
    Piece,
    Refusal,
    Request,
    Route,
    TooLarge,
    Unavailable,
    Unsupported,
)

ASKERS_FAULT = (BadImage, BadRequest, Invalid, TooLarge, Unsupported)
HEDGE_SHARE = 0.5  # of a request's deadline, after which a second engine is asked


@dataclass(frozen=True, slots=True)
class DualOptions:
    """When which engine is asked. Raises ``ValueError`` that names the field when a value is out of range.

    The small engine's answer is taken from ``threshold`` on (None: that of its confidence file). After ``hedge_s``
    without an answer, or half of the request's deadline, the large one is asked beside it. ``patience_s`` is how long
    the large one may take to begin before the small one's unsure answer is given instead.
    """

    threshold: float | None = None
    hedge_s: float = 5.0
    patience_s: float = 10.0
    failures_until_open: int = 3
    cooldown_s: float = 10.0

    def __post_init__(self) -> None:
        """Check every range."""
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"`threshold` is {self.threshold}; expected 0 (never ask the large one) to 1.")
        for name in ("hedge_s", "patience_s", "cooldown_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected a number of seconds above 0.")
        if self.failures_until_open < 1:
            raise ValueError(f"`failures_until_open` is {self.failures_until_open}; expected at least 1.")


@dataclass(frozen=True, slots=True)
class Member:
    """One of the two: what it is called, who answers, the hash of its weights, and its breaker."""

    name: str
    answer: Answer
    model_hash: str
    breaker: Breaker


@dataclass(frozen=True, slots=True)
class _Whole:
    pieces: tuple[Piece, ...]

    @property
    def score(self) -> float:
        """The log-probability of the answer, all its tokens together."""
        return sum(piece.logprob for piece in self.pieces)


class Dual:
    """An ``Answer`` made of two. ``confidence`` maps a log-probability to the probability of being right."""

    def __init__(
        self,
        small: tuple[str, Answer, str],
        large: tuple[str, Answer, str],
        confidence: Callable[[float], float],
        threshold: float,
        options: DualOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``small`` and ``large`` are name, answerer and hash of the weights."""
        self.options = options or DualOptions()

        def member(named: tuple[str, Answer, str]) -> Member:
            return Member(*named, Breaker(self.options.failures_until_open, self.options.cooldown_s, clock))

        self.small, self.large = member(small), member(large)
        self._clock = clock
        self._confidence = confidence
        self._threshold = threshold if self.options.threshold is None else self.options.threshold

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """Answer piece by piece; the small engine's answer comes at once, when it is whole."""
        began = self._clock()
        if not self.small.breaker.allow():
            async with aclosing(self._streamed(request, None, "small_down", ())) as pieces:
                async for piece in pieces:
                    yield piece
            return
        small = asyncio.create_task(self._whole(self.small, request))
        large: asyncio.Task[_Whole] | None = None
        try:
            await asyncio.wait({small}, timeout=self._hedge_s(request))
            if not small.done() and self.large.breaker.allow():
                large = asyncio.create_task(self._whole(self.large, self._later(request, began)))
                async for piece in self._race(small, large):
                    yield piece
                return
            outcome = await _outcome(small)
            async with aclosing(self._after(self._later(request, began), outcome)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            for task in (small, large):
                if task is not None:
                    task.cancel()
            await asyncio.wait({task for task in (small, large) if task is not None})

    async def _after(self, request: Request, small: _Whole | Exception) -> AsyncGenerator[Piece]:
        """The small engine is done: its answer, or what the large one says to it."""
        asked = (self.small.name,)
        if isinstance(small, _Whole):
            confidence = self._confidence(small.score)
            if confidence >= self._threshold:
                for piece in _routed(small.pieces, self.small, "confident", confidence, asked):
                    yield piece
                return
            pieces = self._streamed(request, small, "unsure", asked)
        else:
            _raise_askers_fault(small)
            reason = "over_budget" if isinstance(small, OverBudget) else "failed_over"
            pieces = self._streamed(request, None, reason, asked, failure=small)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _race(self, small: asyncio.Task[_Whole], large: asyncio.Task[_Whole]) -> AsyncIterator[Piece]:
        """Both work; the first good answer is given: the small one's where it is confident, the large one's always."""
        asked = (self.small.name, self.large.name)
        pending: set[asyncio.Task[_Whole]] = {small, large}
        unsure: tuple[_Whole, float] | None = None
        failure: Exception | None = None
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda one: one is large):
                outcome = await _outcome(task)
                if isinstance(outcome, Exception):
                    _raise_askers_fault(outcome)
                    failure = outcome
                    continue
                member = self.small if task is small else self.large
                confidence = self._confidence(outcome.score) if task is small else unsure and unsure[1]
                if task is small and confidence is not None and confidence < self._threshold:
                    unsure = (outcome, confidence)
                    continue
                for piece in _routed(outcome.pieces, member, "hedged", confidence, asked):
                    yield piece
                return
        if unsure is None:
            raise failure or Unavailable("Neither engine answered; ask again.")
        for piece in _routed(unsure[0].pieces, self.small, "large_failed", unsure[1], asked):
            yield piece

    async def _streamed(
        self,
        request: Request,
        small: _Whole | None,
        reason: str,
        asked: tuple[str, ...],
        failure: Exception | None = None,
    ) -> AsyncGenerator[Piece]:
        """The large engine's answer as it grows; before its first piece the small one's can still take its place."""
        confidence = None if small is None else self._confidence(small.score)
        breaker = self.large.breaker
        if not breaker.allow():
            async for piece in _instead(small, self.small, "large_down", confidence, asked, failure):
                yield piece
            return
        asked = (*asked, self.large.name)
        begun = False
        stream = cast("AsyncGenerator[Piece]", self.large.answer(request))
        try:
            async with aclosing(stream):
                async with asyncio.timeout(self.options.patience_s if small is not None else None):
                    pieces = [await anext(stream)]
                while pieces:
                    begun = True
                    for piece in _routed(pieces, self.large, reason, confidence, asked):
                        yield piece
                    if pieces[-1].finish is not None:
                        break
                    pieces = [piece async for piece in _next(stream)]
        except ASKERS_FAULT:
            breaker.success()
            raise
        except (GeneratorExit, asyncio.CancelledError):
            breaker.forget()
            raise
        except Exception as error:
            breaker.forget() if isinstance(error, Busy | OverBudget) else breaker.failure()
            if begun:
                raise
            late = "large_late" if isinstance(error, TimeoutError) else "large_failed"
            async for piece in _instead(small, self.small, late, confidence, asked, error):
                yield piece
        else:
            breaker.success() if pieces else breaker.failure()  # a stream that just stops is no answer

    async def _whole(self, member: Member, request: Request) -> _Whole:
        """The whole answer of one engine, and its breaker told."""
        try:
            async with aclosing(cast("AsyncGenerator[Piece]", member.answer(request))) as stream:
                pieces = tuple([piece async for piece in stream])
            if not pieces or pieces[-1].usage is None:
                raise Unavailable("The engine stopped in the middle of the answer; ask again.")
        except ASKERS_FAULT:
            member.breaker.success()
            raise
        except (asyncio.CancelledError, Busy, OverBudget):
            member.breaker.forget()
            raise
        except Exception:
            member.breaker.failure()
            raise
        member.breaker.success()
        return _Whole(pieces)

    def _later(self, request: Request, began: float) -> Request:
        """The request with what is left of its deadline; never nothing, since an engine refuses what is too late."""
        if request.deadline_s is None:
            return request
        return replace(request, deadline_s=max(1e-3, request.deadline_s - (self._clock() - began)))

    def _hedge_s(self, request: Request) -> float:
        if request.deadline_s is None:
            return self.options.hedge_s
        return min(self.options.hedge_s, HEDGE_SHARE * request.deadline_s)


async def _next(stream: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    """The next piece of a stream, where there is one."""
    async for piece in stream:
        yield piece
        return


async def _outcome(task: asyncio.Task[_Whole]) -> _Whole | Exception:
    """What a task came to, its failure as a value."""
    try:
        return await task
    except Exception as error:  # noqa: BLE001 - decided upon by whoever asked
        return error


def _raise_askers_fault(error: Exception) -> None:
    if isinstance(error, ASKERS_FAULT):
        raise error


async def _instead(
    small: _Whole | None,
    member: Member,
    reason: str,
    confidence: float | None,
    asked: tuple[str, ...],
    failure: Exception | None,
) -> AsyncIterator[Piece]:
    """The small engine's answer, since the large one gives none. Raises ``failure`` where there is no such answer."""
    if small is None:
        refusal = failure if isinstance(failure, Refusal) else None
        raise refusal or Unavailable("Neither of the two engines can answer now; ask again in a moment.")
    for piece in _routed(small.pieces, member, reason, confidence, asked):
        yield piece


def _routed(
    pieces: tuple[Piece, ...] | list[Piece],
    member: Member,
    reason: str,
    confidence: float | None,
    asked: tuple[str, ...],
) -> list[Piece]:
    """The pieces, the last one telling which way the answer came."""
    told = []
    for piece in pieces:
        if piece.usage is not None:
            route = Route(member.name, reason, confidence, asked)
            usage = replace(piece.usage, route=route, model_hash=piece.usage.model_hash or member.model_hash)
            piece = replace(piece, usage=usage)
        told.append(piece)
    return told
