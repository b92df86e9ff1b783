"""Services that this one asks: a vision service for features, another server as the second of two engines."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from foveola.engine.travel import Garbled, Look, Sights, pack_look, unpack_sights
from foveola.exchange import (
    BadImage,
    Busy,
    ImageUse,
    Invalid,
    OverBudget,
    Piece,
    Refusal,
    Request,
    Stages,
    TokenLogprob,
    TooLarge,
    Turn,
    Unavailable,
    Unsupported,
    Usage,
)
from foveola.serve.async_http import Reply, exchanged
from foveola.serve.seeing import BINARY

_KINDS: dict[str, type[Refusal]] = {
    kind.code: kind for kind in (BadImage, Busy, Invalid, OverBudget, TooLarge, Unsupported)
}
_LARGEST = 320 * 1024 * 1024


def refusal_of(status: int, body: bytes, who: str) -> Refusal:
    """What another server refused, as our own: the asker's fault stays that, all else is ``Unavailable``."""
    try:
        error = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
        field = error.get("field") or error.get("param")
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"The {who} refused with status {status}; ask whoever runs it to look at its log.")
    kind = _KINDS.get(code)
    if kind is None:
        return Unavailable(f"The {who} cannot answer now ({code}); ask again in a moment.")
    return Busy(message) if kind is Busy else kind(message, field=field)


class VisionClient:
    """Asks a vision service. Thread-safe; every thread keeps a connection."""

    def __init__(self, url: str, key: str = "", timeout_s: float = 60.0) -> None:
        """Raises ``Invalid`` for what is no address of a server."""
        self._scheme, self._host, self._port, self._path = address(url)
        self._headers = {"content-type": BINARY, **({"authorization": f"Bearer {key}"} if key else {})}
        self._timeout_s = timeout_s
        self._kept = threading.local()

    def __call__(self, look: Look) -> Sights:
        """See pictures there. Raises what the service refuses, ``Unavailable`` where it does not answer sensibly."""
        status, body = self._post(pack_look(look), {"traceparent": look.span} if look.span else {})
        if status != http.client.OK:
            raise refusal_of(status, body, "vision service")
        try:
            return unpack_sights(body)
        except Garbled as garbled:
            raise Unavailable(
                f"The vision service sent features that cannot be read ({garbled}); deploy both from the same version."
            ) from None

    def _post(self, body: bytes, more: Mapping[str, str]) -> tuple[int, bytes]:
        """Once more on a new connection where a kept one turns out to be closed."""
        for fresh in (False, True):
            connection = None if fresh else getattr(self._kept, "connection", None)
            kept = connection is not None
            if connection is None:
                kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
                connection = kind(self._host, self._port, timeout=self._timeout_s)
            try:
                connection.request("POST", f"{self._path}/v1/vision/features", body, {**self._headers, **more})
                reply = connection.getresponse()
                data = reply.read(_LARGEST)
            except (OSError, http.client.HTTPException):
                connection.close()
                self._kept.connection = None
                if kept:
                    continue
                break
            self._kept.connection = connection
            return reply.status, data
        raise Unavailable("The vision service does not answer; ask again in a moment.")


class RemoteAnswer:
    """Another server as an ``Answer``, through its chat completions, streamed. ``model`` and ``model_hash`` are its."""

    def __init__(self, url: str, key: str = "") -> None:
        """Ask the server what it serves; blocks. Raises ``Invalid`` or ``Unavailable``."""
        self._scheme, self._host, self._port, self._path = address(url)
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.model, self.model_hash = self._served()

    def _served(self) -> tuple[str, str]:
        kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=10.0)
        try:
            connection.request("GET", f"{self._path}/v1/models", headers=self._headers)
            reply = connection.getresponse()
            first = json.loads(reply.read())["data"][0]
            return str(first["id"]), str(first["model_hash"])
        except (OSError, ValueError, KeyError, IndexError, TypeError, http.client.HTTPException):
            raise Unavailable(
                f"No server of this kind answers at {self._host} port {self._port}; start it, then this one."
            ) from None
        finally:
            connection.close()

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """Its answer, piece by piece. Raises its refusals, ``Unavailable`` where it breaks."""
        headers = {**self._headers, "content-type": "application/json", "x-request-id": request.id}
        if request.span:
            headers["traceparent"] = request.span
        if request.deadline_s is not None:
            headers["x-timeout-s"] = f"{request.deadline_s:.3f}"
        body = json.dumps(chat_of_request(request, self.model)).encode()
        path = f"{self._path}/v1/chat/completions"
        try:
            async with exchanged(self._scheme, self._host, self._port, "POST", path, headers, body) as reply:
                if reply.status != http.client.OK:
                    raise refusal_of(reply.status, await reply.read(), "other server")
                async for piece in _pieces(reply):
                    yield piece
        except (OSError, ValueError, KeyError, TypeError):
            raise Unavailable("The other server broke off; ask again in a moment.") from None


async def _pieces(reply: Reply) -> AsyncIterator[Piece]:
    finish: Any = None
    async for line in reply.lines():
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise refusal_of(503, line[6:], "other server")
        if not chunk["choices"]:
            told = chunk["usage"]
            model_hash = str(chunk["system_fingerprint"]).removeprefix("fp_")
            yield Piece("", finish=finish, usage=usage_of_json(told, model_hash))
            return
        choice = chunk["choices"][0]
        finish = choice["finish_reason"]
        logprobs = tuple(
            TokenLogprob(bytes(one["bytes"]), one["logprob"])
            for one in (choice.get("logprobs") or {"content": ()})["content"]
        )
        text = choice["delta"].get("content", "")
        if text or logprobs:
            total = sum(one.logprob for one in logprobs)
            yield Piece(text, max(1, len(logprobs)), total, logprobs=logprobs)


def usage_of_json(told: dict[str, Any], model_hash: str) -> Usage:
    """Usage as ``wire.usage_of`` writes it, without evidence."""
    images = tuple(
        ImageUse(tuple(image["original"]), tuple(image["used"]), image["tokens"]) for image in told["images"]
    )
    return Usage(
        prompt_tokens=told["prompt_tokens"],
        visual_tokens=told["visual_tokens"],
        completion_tokens=told["completion_tokens"],
        images=images,
        stages=Stages(**told["stages"]),
        model_hash=model_hash,
    )


def chat_of_request(request: Request, model: str) -> dict[str, Any]:
    """A request in OpenAI's form, streamed, with its usage at the end."""
    sampling = request.sampling
    chat: dict[str, Any] = {
        "model": model,
        "messages": [{"role": turn.role, "content": _content(turn)} for turn in request.turns],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "visual_tokens": request.visual_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
    }
    if sampling.logprobs:
        chat["top_logprobs"] = sampling.logprobs
    return chat


def _content(turn: Turn) -> str | list[dict[str, Any]]:
    if not (turn.images or turn.parts):
        return turn.text
    parts = turn.parts or (*range(len(turn.images)), *((turn.text,) if turn.text else ()))
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {"url": f"data:;base64,{base64.b64encode(turn.images[part]).decode()}"},
        }
        for part in parts
    ]


def address(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of a server. Raises ``Invalid``."""
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or parts.query or parts.username:
        raise Invalid(f"{url[:80]!r} is no address of a server; expected one such as http://host:8080.", field="url")
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/")
