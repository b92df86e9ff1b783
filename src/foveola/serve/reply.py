"""A refusal as a response: for handlers, and for layers that stand before the routes."""

from __future__ import annotations

from starlette.responses import Response

from foveola.exchange import Refusal
from foveola.serve.refusals import body_of, headers_of
from foveola.serve.wire import encode


def reply(refusal: Refusal, path: str = "", more: dict[str, str] | None = None) -> Response:
    """The response for ``refusal`` to a request of ``path``; ``more`` are further headers."""
    headers = {**headers_of(refusal), **(more or {})}
    return Response(encode(body_of(refusal, path)), refusal.status, headers, "application/json")
