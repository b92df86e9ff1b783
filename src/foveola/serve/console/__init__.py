"""The console at ``/console``: one page for the person at the line and the person on call, and nothing from elsewhere.

The page is plain files that a browser reads as they are. Its policy lets it load from this server only and run no
script that stands in the page; what an answer says reaches the page as text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.responses import Response

from foveola.serve.service import Service

POLICY = "; ".join([
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' blob: data:",  # the picture that is asked about, and the PNGs of the drift timeline
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",  # no text becomes markup, not even by mistake
    "trusted-types 'none'",
])  # fmt: skip
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # the page belongs to the version that serves it
    "cross-origin-opener-policy": "same-origin",
}
SCRIPTS = ("console", "metrics", "page", "picture", "server")
FILES = {
    "/console": ("console.html", "text/html; charset=utf-8"),
    "/console/console.css": ("console.css", "text/css; charset=utf-8"),
    **{f"/console/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in SCRIPTS},
    "/console/words.json": ("words.json", "application/json"),
}


class There(BaseModel):
    """What the server has, so that the page asks for nothing that is not there."""

    ready: bool
    keys: bool = Field(description="asking needs an API key")
    drift: bool
    patching: bool = Field(description="the weights can be replaced while serving")
    selects: bool = Field(description="fewer visual tokens of a picture will do")
    bridge: bool
    split: bool = Field(description="a Prometheus tells how traffic is split by version")
    guards: bool


def add_console(app: FastAPI, service: Service, *, keys: bool, bridge: bool) -> None:
    """Add the page's routes; the gate lets everybody have the page, what it asks for needs a key."""
    for path, (name, kind) in FILES.items():
        app.add_api_route(path, _sender(name, kind), include_in_schema=False, response_class=Response)

    @app.get("/console/there.json", include_in_schema=False)
    async def there() -> There:
        served = service.loaded
        return There(
            ready=served is not None,
            keys=keys,
            drift=served is not None and served.drift is not None,
            patching=served is not None and served.patching is not None,
            selects=served is not None and served.selects,
            bridge=bridge,
            split=bool(service.options.prometheus),
            guards=served is not None and served.verdicts is not None,
        )


def file_of(name: str) -> bytes:
    """One of the page's files as it was packaged."""
    return Path(__file__).with_name(name).read_bytes()


def _sender(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    body = file_of(name)

    async def send() -> Response:
        return Response(body, media_type=kind, headers=HEADERS)

    return send
