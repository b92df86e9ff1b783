"""Refusals that only HTTP knows, and the one JSON shape of all of them."""

from __future__ import annotations

import math
from typing import Any

from foveola.exchange import Busy, Refusal


class NotFound(Refusal):
    """No such path, or no such thing under it (404)."""

    code = "not_found"
    status = 404


class MethodNotAllowed(Refusal):
    """The path exists and is asked in another way (405)."""

    code = "method_not_allowed"
    status = 405


class TooSlow(Refusal):
    """The body did not arrive in time (408)."""

    code = "request_timeout"
    status = 408


class Loading(Refusal):
    """The model is still being loaded (503)."""

    code = "loading"
    status = 503


class Overdue(Refusal):
    """The answer was not finished in time (503)."""

    code = "answer_timeout"
    status = 503


class Broken(Refusal):
    """Something went wrong that is not the client's fault (500)."""

    code = "internal_error"
    status = 500

    @classmethod
    def of(cls, request_id: str) -> Broken:
        """The failure of one request, told without its insides."""
        return cls(f"The server failed on this request; its log tells more under id {request_id}.")


def body_of(refusal: Refusal) -> dict[str, Any]:
    """``{"error": {"code", "message", "field"?}}``."""
    error = {"code": refusal.code, "message": refusal.message}
    if refusal.field is not None:
        error["field"] = refusal.field
    return {"error": error}


def headers_of(refusal: Refusal) -> dict[str, str]:
    """Headers that belong to the refusal: ``Retry-After`` (whole seconds, rounded up) where coming back may help."""
    if isinstance(refusal, Busy):
        return {"retry-after": str(max(1, math.ceil(refusal.retry_after_s)))}
    if isinstance(refusal, Loading):
        return {"retry-after": "1"}
    return {}
