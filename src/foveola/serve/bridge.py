"""The bridge in this server, where its sources are configured: devices and reviewers are their API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.requests import Request

from foveola.bridge.options import BridgeOptions
from foveola.options import BadSetting
from foveola.serve.gate import key_of
from foveola.serve.keys import KeyRing
from foveola.serve.refusals import Forbidden, Unauthorised

if TYPE_CHECKING:
    from foveola.bridge.desk import Desk

REVIEWER_ROLE = "admin"


def open_desk(options: BridgeOptions, ring: KeyRing) -> Desk | None:
    """The bridge's desk, or None where no sources are configured.

    Raises ``BadSetting`` without keys, since who a source is comes from its key; ``Invalid`` for wrong files.
    """
    if options.sources is None:
        return None
    if not ring:
        raise BadSetting("The bridge needs API keys: a source is who its key says. Set `keys_file` in [serve].")
    from foveola.bridge.desk import Desk

    return Desk(options)


def add_bridge(app: FastAPI, desk: Desk) -> None:
    """Mount the bridge's routes; the name of an API key is the channel of a source and the name of a reviewer."""
    from foveola.bridge.router import create_router

    app.include_router(create_router(desk, _who, _reviewer))


def _who(request: Request) -> str:
    key = key_of(request.scope)
    if key is None:
        raise Unauthorised("The bridge has to know who asks; send a key as `Authorization: Bearer KEY`.")
    return key.name


def _reviewer(request: Request) -> str:
    name = _who(request)
    key = key_of(request.scope)
    if key is None or REVIEWER_ROLE not in key.roles:
        raise Forbidden(f"Reviews need a key with the role `{REVIEWER_ROLE}`; this one has not.")
    return name
