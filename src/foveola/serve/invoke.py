"""The house's own way of asking, ``/v1/vlm/invoke``, and OpenAI's, as they are read and told."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request as HttpRequest

from foveola.exchange import Piece, Refusal
from foveola.serve import wire
from foveola.serve.body import beside_the_loop, read_json, read_question
from foveola.serve.dialect import Read, Told
from foveola.serve.openai import ChatAnswer, chat_of, request_of_chat
from foveola.serve.options import ServeOptions
from foveola.serve.refusals import body_of
from foveola.serve.wire import Asked


class InvokeAnswer:
    """Tells an answer as one object, or as ``delta`` events and a ``done`` event with that object."""

    model: str | None = None
    low_detail = False

    def __init__(self, asked: Asked, *, stream: bool) -> None:
        self.request = asked.request
        self.stream = stream
        self._evidence = asked.evidence

    def whole(self, told: Told) -> dict[str, Any]:
        """The reply."""
        last = Piece("", finish=told.finish)
        model = {"model": told.name, "model_hash": told.model_hash}
        return wire.reply_of(
            self.request.id,
            told.text,
            last,
            told.usage,
            latency_s=told.latency_s,
            model=model,
            evidence=self._evidence,
        )

    def delta(self, piece: Piece, model_hash: str, *, first: bool) -> bytes:
        """A ``delta`` event for a piece with text."""
        return wire.event("delta", {"delta": piece.text}) if piece.text else b""

    def ending(self, told: Told) -> bytes:
        """The ``done`` event."""
        return wire.event("done", self.whole(told))

    def failure(self, refusal: Refusal) -> bytes:
        """The ``error`` event."""
        return wire.event("error", body_of(refusal))


def reads_invoke(*, stream: bool) -> Read:
    """Reads multipart forms and JSON."""

    async def read(http: HttpRequest, options: ServeOptions, request_id: str) -> InvokeAnswer:
        question = await read_question(http, options)
        return InvokeAnswer(wire.asked_of(question, request_id), stream=stream)

    return read


async def read_chat(http: HttpRequest, options: ServeOptions, request_id: str) -> ChatAnswer:
    """Reads a chat completion."""
    body = await read_json(http, options)

    def decoded(data: bytearray, max_image_bytes: int) -> ChatAnswer:
        chat = chat_of(data)
        return ChatAnswer(chat, request_of_chat(chat, request_id, max_image_bytes))

    return await beside_the_loop(decoded, body, options.max_image_bytes)
