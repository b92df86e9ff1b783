"""A response that is an answer: reads the question, asks the engine, watches the client, sends JSON or events."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Mapping
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foveola.exchange import Answer, Invalid, Piece, Refusal, Request, TokenLogprob, Unavailable
from foveola.observe.context import TraceContext, own_context
from foveola.serve.body import announced_bytes
from foveola.serve.dialect import Read, Telling, Told
from foveola.serve.door import Note, note_of
from foveola.serve.gate import key_of
from foveola.serve.keys import Key
from foveola.serve.log import event
from foveola.serve.options import ServeOptions
from foveola.serve.refusals import Broken, Forbidden, Overdue
from foveola.serve.service import Served, Service
from foveola.serve.wire import encode

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies must not hold the events back
]
CLIENT_GONE = 499  # as nginx logs it; never sent, since nobody is there
TRACEPARENT_CHARS = 55
DEADLINE_HEADER = "x-timeout-s"
CAMERA_HEADER = "x-camera"
CAMERA_CHARS = 64
LOW_DETAIL_TOKENS = 64  # of each picture, where all are asked for in low detail and the model can do with fewer
CUT_SHORT = "The engine stopped in the middle of the answer; ask again."
LAST_EVENT_S = 1.0  # for the last words to a client that may have stopped reading


class ClientGone(Exception):
    """The client closed its connection, or stopped reading, before the answer was complete: nobody to reply to."""


async def unless_gone(work: Coroutine[Any, Any, None], receive: Receive, timeout_s: float) -> None:
    """Run ``work``; cancel it and wait for its end when the client goes (``ClientGone``) or time is up (``Overdue``).

    The request's body must have been read.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        elif gone.done():
            gone.result()
            raise ClientGone
        else:
            raise Overdue(f"The answer was not finished within {timeout_s:g} s; ask for fewer tokens.")
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.wait({task, gone})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Answering(Response):
    """Does all of a request when it is sent, so that its place and its memory are held exactly as long.

    ``read`` says how the question is read and, with it, how its answer is told. A refusal before the first byte is
    raised, and becomes a plain reply; after it, it becomes the stream's last event.
    """

    def __init__(self, service: Service, read: Read) -> None:
        super().__init__()
        self.service = service
        self.read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the question and send the whole answer, or nothing more once the client has gone."""
        try:
            await self._serve(note_of(scope), scope, receive, send)
        except ClientGone:
            note_of(scope).status = CLIENT_GONE

    async def _serve(self, note: Note, scope: Scope, receive: Receive, send: Send) -> None:
        served = self.service.served  # one model for the whole request, whatever is loaded meanwhile
        http = HttpRequest(scope, receive)
        with self.service.admitted(announced_bytes(http.headers, self.service.options)):
            try:
                telling = await self.read(http, self.service.options, note.id)
            except ClientDisconnect:
                raise ClientGone from None
            note.details["read_s"] = round(note.age_s, 6)
            answer = served.answer_of(telling.model)
            timeout_s = deadline_of(http.headers, self.service.options)
            request = replace(
                telling.request, deadline_s=timeout_s, camera=camera_of(http.headers), whole=not telling.stream
            )
            request = _traced(request, http.headers.get("traceparent", "")[:TRACEPARENT_CHARS], served)
            usual = None if telling.model in served.others else self.service.options.visual_prompt
            request = in_name_of(key_of(scope), request, usual)
            if telling.low_detail and served.selects:
                request = replace(request, visual_tokens=LOW_DETAIL_TOKENS)
            exchange = _Exchange(self.service, served, answer, telling, request, note, send)
            await self._answer(exchange, receive, timeout_s)

    async def _answer(self, exchange: _Exchange, receive: Receive, timeout_s: float) -> None:
        work = exchange.send_events() if exchange.telling.stream else exchange.send_whole()
        try:
            await unless_gone(work, receive, timeout_s)
        except ClientGone:
            if not exchange.complete:  # who has everything may go
                raise
        except Exception as error:
            if exchange.note.status is None or not exchange.telling.stream:
                raise
            await exchange.send_failure(error)


def deadline_of(headers: Mapping[str, str], options: ServeOptions) -> float:
    """Seconds that the answer may take: the client's ``X-Timeout-S`` where it is stricter than the server's own bound.

    Raises ``Invalid`` for one that is no number above 0.
    """
    given = headers.get(DEADLINE_HEADER)
    if given is None:
        return options.answer_timeout_s
    try:
        seconds = float(given[:20])
    except ValueError:
        seconds = 0.0
    if not (math.isfinite(seconds) and seconds > 0):
        raise Invalid("`X-Timeout-S` is no number of seconds above 0; send one, or leave it out.", field="X-Timeout-S")
    return min(seconds, options.answer_timeout_s)


def camera_of(headers: Mapping[str, str]) -> str:
    """The name of the camera that took the picture (``X-Camera``, percent-encoded where it is not ASCII), empty where
    it was not said.

    Raises ``Invalid`` for one that is too long or holds what is not printed.
    """
    camera = unquote(headers.get(CAMERA_HEADER, "").strip())
    if len(camera) > CAMERA_CHARS or not camera.isprintable():
        raise Invalid(
            f"`X-Camera` is no name of at most {CAMERA_CHARS} printed characters; send one, or leave it out.",
            field="X-Camera",
        )
    return camera


def _traced(request: Request, traceparent: str, served: Served) -> Request:
    """With the client's trace, and what goes on from here: our own span, or the client's where none is made."""
    span = str(own_context(traceparent, request.id)) if served.traces else traceparent
    return replace(request, trace=traceparent, span=span if TraceContext.of(span) is not None else "")


def in_name_of(key: Key | None, request: Request, usual: str | None = "") -> Request:
    """The request with what its key gives it: a share of its own, a place in the queue, and a visual prompt before its
    pictures, or else the server's ``usual`` one. None: none but what it names, since it asks another model.

    Raises ``Forbidden`` where it names a visual prompt that is not the key's.
    """
    own = "" if key is None else key.visual_prompt
    named = request.visual_prompt
    if own and named not in ("", own):
        raise Forbidden("This key may not use that visual prompt; leave the field out, and its own is used.")
    if not named and usual is not None and any(turn.images for turn in request.turns):
        named = own or usual
    if key is not None:
        request = replace(request, client=key.name, priority=key.priority)
    return replace(request, visual_prompt=named)


class _Exchange:
    """One question on its way through the engine and back."""

    def __init__(
        self,
        service: Service,
        served: Served,
        answer: Answer,
        telling: Telling,
        request: Request,
        note: Note,
        send: Send,
    ) -> None:
        self.service = service
        self.served = served
        self.answer = answer
        self.telling = telling
        self.request = request
        self.note = note
        self.send = send
        self.complete = False  # whether the last byte was handed to the connection
        self.weights = served.weights  # before the end of an answer is there, which tells its own

    async def send_whole(self) -> None:
        """The answer as one JSON object, sent before what made it is cleared away: nobody has to wait for that."""
        texts: list[str] = []
        logprobs: list[TokenLogprob] = []
        last: Piece | None = None
        async with aclosing(self.service.answer(self.answer, self.request)) as pieces:
            async for last in pieces:
                texts.append(last.text)
                logprobs += last.logprobs
                if last.finish is not None:
                    await self._send_object(self._told(texts, logprobs, last))
        if last is None or last.finish is None:
            raise Unavailable(CUT_SHORT)

    async def _send_object(self, told: Told) -> None:
        body = encode(self.telling.whole(told))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send_body(body, more=False)

    async def send_events(self) -> None:
        """The answer as server-sent events, one for every piece that has something to tell, and the end."""
        texts: list[str] = []
        last: Piece | None = None
        async with aclosing(self.service.answer(self.answer, self.request)) as pieces:
            async for last in pieces:
                first = self.note.status is None
                if first:  # only now is it known that the picture and the prompt are good
                    await self.send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
                texts.append(last.text)
                event_bytes = self.telling.delta(last, self.weights, first=first)
                if event_bytes:
                    await self._send_body(event_bytes, more=True)
        await self._send_body(self.telling.ending(self._told(texts, [], last)), more=False)

    async def send_failure(self, error: Exception) -> None:
        """End a stream that has begun with the failure. Raises ``ClientGone`` if nobody reads it."""
        if isinstance(error, Refusal):
            refusal = error
        else:
            event(logging.ERROR, "unhandled", id=self.note.id, error=error)
            refusal = Broken.of(self.note.id)
        self.note.details["code"] = refusal.code
        try:
            async with asyncio.timeout(LAST_EVENT_S):
                await self._send_body(self.telling.failure(refusal), more=False)
        except TimeoutError:
            raise ClientGone from None

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})
        self.complete = not more

    def _told(self, texts: list[str], logprobs: list[TokenLogprob], last: Piece | None) -> Told:
        if last is None or last.finish is None or last.usage is None:
            raise Unavailable(CUT_SHORT)
        usage = last.usage
        self.note.details |= {
            "finish": last.finish,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "stages": {name: round(seconds, 6) for name, seconds in asdict(usage.stages).items()},
        }
        if usage.route is not None:
            self.note.details |= {"engine": usage.route.engine, "reason": usage.route.reason}
        model_hash = usage.model_hash or self.weights
        text, name = "".join(texts), self.telling.model or self.served.name
        return Told(text, last.finish, usage, tuple(logprobs), name, model_hash, self.note.age_s)
