"""``/v1/vision/features``: the vision half of a model, for the language service beside it. Binary in, binary out."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foveola.exchange import BadRequest
from foveola.serve.answering import CLIENT_GONE, ClientGone, unless_gone
from foveola.serve.body import announced_bytes, check_length, content_type, in_time, read_all
from foveola.serve.door import note_of
from foveola.serve.refusals import NotFound
from foveola.serve.service import Service

BINARY = "application/octet-stream"


class Seeing(Response):
    """Sees pictures when it is sent, under the same limits as a question."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the pictures and send their features."""
        service, note = self.service, note_of(scope)
        see = service.served.see
        if see is None:
            raise NotFound("This server does not see for others; start one with --role vision.")
        http = HttpRequest(scope, receive)
        content_type(http.headers, (BINARY,))
        check_length(http.headers, service.options.max_body_bytes)
        with service.admitted(announced_bytes(http.headers, service.options)):
            try:
                async with in_time(service.options):
                    body = await read_all(http.stream(), service.options.max_body_bytes)

                async def work() -> None:
                    data = await asyncio.to_thread(_seen, see, body)
                    await Response(data, media_type=BINARY)(scope, receive, send)

                await unless_gone(work(), receive, service.options.answer_timeout_s)
            except (ClientDisconnect, ClientGone):
                note.status = CLIENT_GONE


def _seen(see: object, body: bytearray) -> bytes:
    from foveola.engine.seer import Seer
    from foveola.engine.travel import Garbled, pack_sights, unpack_look

    assert isinstance(see, Seer)
    try:
        look = unpack_look(body)
    except Garbled as garbled:
        raise BadRequest(
            f"These are not pictures as a language service sends them: {garbled}; use the same version on both sides."
        ) from None
    return pack_sights(see(look))
