"""One record per request, made by a wrapper around any answerer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, cast

from foveola.exchange import Answer, Piece, Refusal, Request, Usage

TEXT_CHARS = 200
Outcome = Literal["answered", "refused", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one request.

    ``seconds`` is the wall time until its end, ``first_piece_s`` that until the first piece (None: there was none).
    ``code`` is that of the refusal, ``internal_error`` for a failure that is not one. ``usage`` comes with an answer;
    ``text`` is its beginning, at most ``TEXT_CHARS``, and ``chars`` its length. ``client`` is whose request it was,
    ``trace`` the W3C ``traceparent`` that came with it, ``camera`` what took the picture, and
    ``image`` the last picture itself, encoded as it came.
    """

    id: str
    outcome: Outcome
    seconds: float
    first_piece_s: float | None = None
    code: str | None = None
    usage: Usage | None = None
    text: str = ""
    chars: int = 0
    client: str = ""
    trace: str = ""
    camera: str = ""
    image: bytes = field(default=b"", repr=False)


Watch = Callable[[Record], None]


def observed(answer: Answer, *watches: Watch, clock: Callable[[], float] = time.perf_counter) -> Answer:
    """``answer``, with every ``watch`` called once per request, at its end. Pieces and errors pass unchanged.

    A watch runs on the event loop: it must be quick and must not raise.
    """

    async def answering(request: Request) -> AsyncIterator[Piece]:
        began = clock()
        first: float | None = None
        usage: Usage | None = None
        text, chars = "", 0
        outcome: Outcome = "cancelled"  # what it is when the reader leaves before the last piece
        code: str | None = None
        try:
            async with aclosing(cast("AsyncGenerator[Piece]", answer(request))) as pieces:
                async for piece in pieces:
                    if first is None:
                        first = clock() - began
                    text, chars = (text + piece.text)[:TEXT_CHARS], chars + len(piece.text)
                    if piece.finish is not None:  # a reader that has the last piece need not ask for one more
                        outcome, usage = "answered", piece.usage
                    yield piece
        except Refusal as refusal:
            outcome, code = "refused", refusal.code
            raise
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException:
            outcome, code = "failed", "internal_error"
            raise
        finally:
            seconds = clock() - began
            image = next((turn.images[-1] for turn in reversed(request.turns) if turn.images), b"")
            whose = (request.client, request.trace, request.camera, image)
            record = Record(request.id, outcome, seconds, first, code, usage, text, chars, *whose)
            for watch in watches:
                watch(record)

    return answering


def afterwards(watch: Watch) -> Watch:
    """``watch``, called when the event loop comes round again: by then the reply has left, so that nobody waits for it.
    Without a running loop it is called at once."""

    def later(record: Record) -> None:
        try:
            asyncio.get_running_loop().call_soon(watch, record)
        except RuntimeError:
            watch(record)

    return later
