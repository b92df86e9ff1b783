"""``/v1/vlm/count``: what a question would cost, told before it is asked; nothing is run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foveola.serve import wire
from foveola.serve.answering import CLIENT_GONE, ClientGone, in_name_of, unless_gone
from foveola.serve.body import announced_bytes, read_question
from foveola.serve.door import note_of
from foveola.serve.gate import key_of
from foveola.serve.refusals import NotFound
from foveola.serve.service import Counted, Service


class Counting(Response):
    """Takes what ``/v1/vlm/invoke`` takes, under the same limits, and replies with counts."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the question and send what it would cost."""
        service, note = self.service, note_of(scope)
        count = service.served.count
        if count is None:
            raise NotFound("The model that is served here cannot count beforehand; ask it, and read `usage`.")
        http = HttpRequest(scope, receive)
        with service.admitted(announced_bytes(http.headers, service.options)):
            try:
                question = await read_question(http, service.options)
                usual = service.options.visual_prompt
                request = in_name_of(key_of(scope), wire.request_of(question, note.id), usual)

                async def work() -> None:
                    counted = counted_of(await count(request), request.sampling.max_tokens)
                    await Response(wire.encode(counted), media_type="application/json")(scope, receive, send)

                await unless_gone(work(), receive, service.options.answer_timeout_s)
            except (ClientDisconnect, ClientGone):
                note.status = CLIENT_GONE


def counted_of(counted: Counted, max_tokens: int) -> dict[str, Any]:
    """Counts as JSON; ``budget_tokens`` is what prompt and longest answer take of the context together."""
    return {
        "prompt_tokens": counted.prompt_tokens,
        "visual_tokens": counted.visual_tokens,
        "max_tokens": max_tokens,
        "budget_tokens": counted.prompt_tokens + max_tokens,
        "images": [asdict(image) for image in counted.images],
    }
