"""A response that is an answer: reads the question, asks the engine, watches the client, sends JSON or events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foveola.exchange import Piece, Refusal, Request, Unavailable
from foveola.serve import wire
from foveola.serve.body import announced_bytes, read_question
from foveola.serve.door import Note, note_of
from foveola.serve.log import event
from foveola.serve.refusals import Broken, Overdue, body_of
from foveola.serve.service import Served, Service

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies must not hold the events back
]
CLIENT_GONE = 499  # as nginx logs it; never sent, since nobody is there
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

    A refusal before the first byte is raised, and becomes a plain reply; after it, it becomes the stream's last event.
    """

    def __init__(self, service: Service, *, stream: bool) -> None:
        super().__init__()
        self.service = service
        self.stream = stream

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
                question = await read_question(http, self.service.options)
            except ClientDisconnect:
                raise ClientGone from None
            note.details["read_s"] = round(note.age_s, 6)
            exchange = _Exchange(self.service, served, wire.request_of(question, note.id), note, send)
            await self._answer(exchange, receive)

    async def _answer(self, exchange: _Exchange, receive: Receive) -> None:
        work = exchange.send_events() if self.stream else exchange.send_whole()
        try:
            await unless_gone(work, receive, self.service.options.answer_timeout_s)
        except ClientGone:
            raise
        except Exception as error:
            if exchange.note.status is None:
                raise
            await exchange.send_failure(error)


class _Exchange:
    """One question on its way through the engine and back."""

    def __init__(self, service: Service, served: Served, request: Request, note: Note, send: Send) -> None:
        self.service = service
        self.served = served
        self.request = request
        self.note = note
        self.send = send

    async def send_whole(self) -> None:
        """The answer as one JSON object."""
        texts = []
        last: Piece | None = None
        async with aclosing(self.service.answer(self.served, self.request)) as pieces:
            async for last in pieces:
                texts.append(last.text)
        body = wire.encode(self._reply("".join(texts), last))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def send_events(self) -> None:
        """The answer as server-sent events: ``delta`` for every piece of text, ``done`` with the whole reply."""
        texts = []
        last: Piece | None = None
        async with aclosing(self.service.answer(self.served, self.request)) as pieces:
            async for last in pieces:
                if self.note.status is None:  # only now is it known that the picture and the prompt are good
                    await self.send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
                if last.text:
                    texts.append(last.text)
                    await self._send_body(wire.event("delta", {"delta": last.text}), more=True)
        await self._send_body(wire.event("done", self._reply("".join(texts), last)), more=False)

    async def send_failure(self, error: Exception) -> None:
        """End a stream that has begun with an ``error`` event. Raises ``ClientGone`` if nobody reads it."""
        if isinstance(error, Refusal):
            refusal = error
        else:
            event(logging.ERROR, "unhandled", id=self.note.id, error=error)
            refusal = Broken.of(self.note.id)
        self.note.details["code"] = refusal.code
        try:
            async with asyncio.timeout(LAST_EVENT_S):
                await self._send_body(wire.event("error", body_of(refusal)), more=False)
        except TimeoutError:
            raise ClientGone from None

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    def _reply(self, text: str, last: Piece | None) -> dict[str, Any]:
        if last is None or last.finish is None or last.usage is None:
            raise Unavailable("The engine stopped in the middle of the answer; ask again.")
        model = {"model": self.served.name, "model_hash": self.served.model_hash}
        reply = wire.reply_of(self.request.id, text, last, last.usage, latency_s=self.note.age_s, model=model)
        self.note.details |= {
            "finish": last.finish,
            "prompt_tokens": last.usage.prompt_tokens,
            "completion_tokens": last.usage.completion_tokens,
            "stages": reply["usage"]["stages"],
        }
        return reply
