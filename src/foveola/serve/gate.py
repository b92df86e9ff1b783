"""Who may come in: keys and rates, before a byte of the body is read and before any route is looked up.

A path decides what is needed, whatever the verb and whether or not the path exists, so that nobody learns without a key
what there is behind one. Under ``/v1/admin/`` an admin's key is needed even where asking is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from foveola.exchange import Refusal
from foveola.serve.door import note_of
from foveola.serve.keys import Key, KeyRing
from foveola.serve.rate import Rates
from foveola.serve.refusals import Forbidden, RateLimited, Unauthorised
from foveola.serve.reply import reply

OPEN = (
    *("/health/", "/version", "/metrics", "/docs", "/openapi.json"),
    *("/review", "/console"),  # the pages themselves; what they ask for needs a key
    "/v1/guard/",  # what comes there is signed by a camera's gateway, and checked there
)
ROLE_OF = {"/v1/admin": "admin"}
_KEY = "foveola.key"


def key_of(scope: Scope) -> Key | None:
    """Whose request this is, where keys are in use."""
    key: Key | None = scope.get(_KEY)
    return key


def role_of(path: str) -> str | None:
    """The role that a path needs; None where it is open to all."""
    for prefix, role in ROLE_OF.items():
        if path == prefix or path.startswith(prefix + "/"):
            return role
    return None if path.startswith(OPEN) else "ask"


class Gate:
    """Wraps the application. Without keys everybody may ask, ``per_minute`` times from one address (0: no limit)."""

    def __init__(
        self, app: ASGIApp, ring: KeyRing, per_minute: int = 0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self._ring = ring
        self._per_minute = per_minute
        self._rates = Rates(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Refusal as refusal:
                note_of(scope).details["code"] = refusal.code
                await reply(refusal, scope["path"])(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        role = role_of(scope["path"])
        if role is None:
            return
        key = self._ring.find(presented) if (presented := _presented(scope)) is not None else None
        if key is not None:
            note_of(scope).details["key"] = key.name
            scope[_KEY] = key
        if (self._ring or role != "ask") and (key is None or role not in key.roles):
            raise _refused(presented, key, role, anybody=bool(self._ring))
        if key is not None and key.requests_per_minute:
            wait_s = self._rates.take(key.name, key.requests_per_minute)
        else:
            wait_s = 0.0 if key is not None else self._rates.take(("address", _address(scope)), self._per_minute)
        if wait_s:
            raise RateLimited(
                f"More requests came than are let in per minute; ask again in {wait_s:.1f} s.", retry_after_s=wait_s
            )


def _refused(presented: str | None, key: Key | None, role: str, *, anybody: bool) -> Refusal:
    if key is not None:
        return Forbidden(f"This key does not have the role `{role}`; ask whoever runs the server for one that does.")
    if not anybody:
        return Unauthorised("This needs a key, and the server has none; set `keys_file` to switch it on.")
    what = "There is no key" if presented is None else "This key is not known"
    return Unauthorised(f"{what}; send one as `Authorization: Bearer KEY`.")


def _presented(scope: Scope) -> str | None:
    """The key that came: as a bearer's token, or in ``X-API-Key``. Of several headers none counts."""
    given = []
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            given.append(token.strip() if kind.lower() == "bearer" else "")
        elif name == b"x-api-key":
            given.append(value.decode("latin-1").strip())
    return given[0] if len(given) == 1 else (None if not given else "")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
