"""Refusals that only HTTP knows, and the one JSON shape of all of them."""

from __future__ import annotations

import math
from typing import Any

from foveola.exchange import Busy, Refusal, Unavailable


class Unauthorised(Refusal):
    """No key came, or one that is not known (401)."""

    code = "invalid_api_key"
    status = 401


class Forbidden(Refusal):
    """The key is known and does not open this (403)."""

    code = "forbidden"
    status = 403


class RateLimited(Busy):
    """One client asks more often than it may (429)."""

    code = "rate_limit_exceeded"


class NoSuchModel(Refusal):
    """A model is asked for that is not served here (404)."""

    code = "model_not_found"
    status = 404


class Conflict(Refusal):
    """Something else is being changed at the moment (409)."""

    code = "conflict"
    status = 409


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
    """The answer was not finished in time (504)."""

    code = "answer_timeout"
    status = 504


class Broken(Refusal):
    """Something went wrong that is not the client's fault (500)."""

    code = "internal_error"
    status = 500

    @classmethod
    def of(cls, request_id: str) -> Broken:
        """The failure of one request, told without its insides."""
        return cls(f"The server failed on this request; its log tells more under id {request_id}.")


OPENAI_PATHS = ("/v1/chat/", "/v1/models")
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def body_of(refusal: Refusal, path: str = "") -> dict[str, Any]:
    """``{"error": {"code", "message", "field"?}}``, or OpenAI's form of it under OpenAI's paths."""
    if path.startswith(OPENAI_PATHS):
        return openai_body_of(refusal)
    error = {"code": refusal.code, "message": refusal.message}
    if refusal.field is not None:
        error["field"] = refusal.field
    return {"error": error}


def openai_body_of(refusal: Refusal) -> dict[str, Any]:
    """``{"error": {"message", "type", "param", "code"}}``, as OpenAI's clients expect it."""
    kind = _OPENAI_TYPES.get(refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error")
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.field, "code": refusal.code}}


def headers_of(refusal: Refusal) -> dict[str, str]:
    """Headers that belong to the refusal: ``Retry-After`` (whole seconds, rounded up) where coming back may help."""
    if isinstance(refusal, Busy):
        return {"retry-after": str(max(1, math.ceil(refusal.retry_after_s)))}
    if isinstance(refusal, Loading | Unavailable):
        return {"retry-after": "1"}
    if isinstance(refusal, Unauthorised):
        return {"www-authenticate": "Bearer"}
    return {}
