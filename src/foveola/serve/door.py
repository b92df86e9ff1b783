"""The outermost layer, plain ASGI: gives every request its id, logs it once, and lets no exception out."""

from __future__ import annotations

import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foveola.guard.verdict import ROUTE
from foveola.serve.log import event
from foveola.serve.tally import Tally

_NOTE = "foveola.note"
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Note:
    """What the log will say about a request. ``arrived`` is a ``time.perf_counter`` value."""

    id: str
    arrived: float
    status: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def age_s(self) -> float:
        """Seconds since the headers arrived."""
        return time.perf_counter() - self.arrived


def note_of(scope: Scope) -> Note:
    """The note of a request that came through the door."""
    note: Note = scope[_NOTE]
    return note


class Door:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, tally: Tally | None = None, routes: frozenset[str] = frozenset()) -> None:
        """``tally`` counts every request; ``routes`` are paths that may be named though no route was looked up."""
        self.app = app
        self._tally = tally
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        ROUTE.set(scope["path"])
        note = scope[_NOTE] = Note(_id_of(scope), time.perf_counter())

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                note.status = message["status"]
                extra = [(b"x-request-id", note.id.encode()), (b"x-content-type-options", b"nosniff")]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        # What can be got can be asked for its headers: the server below leaves the body of a HEAD out.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self.app(inner, receive, noting)
        except Exception as error:  # noqa: BLE001 - the last resort: logged with its trace, told without
            event(logging.ERROR, "unhandled", id=note.id, error=error)
        finally:
            route = self._route_of(inner)
            _log(route, scope["method"], note)
            if self._tally is not None:
                self._tally.count(route, scope["method"], note.status, note.details.get("code"), note.age_s)

    def _route_of(self, scope: Scope) -> str | None:
        """The template of the path, since a path can hold a user's text."""
        route: str | None = getattr(scope.get("route"), "path", None)
        return route or (scope["path"] if scope["path"] in self._routes else None)


def _id_of(scope: Scope) -> str:
    """The client's ``X-Request-Id`` if it is a sane one, else a new id."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value.decode("latin-1")):
            return str(value, "ascii")
    return uuid.uuid4().hex


def _log(route: str | None, method: str, note: Note) -> None:
    event(
        logging.INFO,
        "request",
        id=note.id,
        method=method,
        route=route,
        status=note.status,
        ms=round(note.age_s * 1000, 3),
        **note.details,
    )
