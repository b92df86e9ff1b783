"""The observing wrapper: it changes nothing and tells exactly one record per request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest

from foveola.exchange import Answer, Busy, Piece, Request, Turn, Usage
from foveola.observe import Record, afterwards, observed

ASKED = Request("r1", (Turn("user", "what?"),))
USAGE = Usage(prompt_tokens=10, visual_tokens=4, completion_tokens=2)
PIECES = [Piece("a", 1), Piece("b", 1, finish="stop", usage=USAGE)]


def answering(*pieces: Piece, error: BaseException | None = None) -> Answer:
    async def answer(request: Request) -> AsyncIterator[Piece]:
        for piece in pieces:
            yield piece
        if error is not None:
            raise error

    return answer


def ticking() -> float:
    ticking.now += 1.0  # type: ignore[attr-defined]
    return ticking.now  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    monkeypatch.setattr(ticking, "now", 0.0, raising=False)
    return []


async def test_an_answer_passes_unchanged(records: list[Record]) -> None:
    watched = observed(answering(*PIECES), records.append, records.append, clock=ticking)
    assert [piece async for piece in watched(ASKED)] == PIECES
    assert records == [Record("r1", "answered", 2.0, 1.0, None, USAGE, "ab", 2)] * 2


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [(Busy("full"), "refused", "busy"), (RuntimeError("bug"), "failed", "internal_error")],
)
async def test_errors_pass_and_are_told(records: list[Record], error: Exception, outcome: str, code: str) -> None:
    watched = observed(answering(PIECES[0], error=error), records.append, clock=ticking)
    with pytest.raises(type(error)) as caught:
        [piece async for piece in watched(ASKED)]
    assert caught.value is error
    assert records == [Record("r1", outcome, 2.0, 1.0, code, None, "a", 1)]  # type: ignore[arg-type]


async def test_a_reader_that_leaves_closes_what_is_inside(records: list[Record]) -> None:
    closed = []

    async def endless(request: Request) -> AsyncIterator[Piece]:
        try:
            while True:
                yield PIECES[0]
        finally:
            closed.append(True)

    async with aclosing(cast("AsyncGenerator[Piece]", observed(endless, records.append)(ASKED))) as pieces:
        await anext(pieces)
    assert closed == [True]
    assert [record.outcome for record in records] == ["cancelled"]


async def test_a_cancelled_task_is_a_cancelled_request(records: list[Record]) -> None:
    started = asyncio.Event()

    async def silent(request: Request) -> AsyncIterator[Piece]:
        started.set()
        await asyncio.Event().wait()
        yield PIECES[0]

    async def read() -> None:
        async for _ in observed(silent, records.append)(ASKED):
            pass

    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(record.outcome, record.code, record.first_piece_s) for record in records] == [("cancelled", None, None)]


async def test_leaving_after_the_last_piece_is_not_cancelling(records: list[Record]) -> None:
    async with aclosing(cast("AsyncGenerator[Piece]", observed(answering(*PIECES), records.append)(ASKED))) as pieces:
        await anext(pieces)
        assert (await anext(pieces)).finish == "stop"
    assert [record.outcome for record in records] == ["answered"]


async def test_what_comes_afterwards_keeps_nobody_waiting() -> None:
    seen: list[str] = []
    watch = afterwards(lambda record: seen.append(record.id))
    watch(Record("r", "answered", 0.1))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["r"]


def test_without_a_loop_it_comes_at_once() -> None:
    seen: list[str] = []
    afterwards(lambda record: seen.append(record.id))(Record("r", "answered", 0.1))
    assert seen == ["r"]
