"""An answerer of the exchange's shape that a test steers, and the plumbing to put it behind the real application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.types import ASGIApp

from foveola.exchange import Answer, ImageUse, Piece, Request, Stages, Usage
from foveola.serve.app import create_app
from foveola.serve.keys import NO_KEYS, KeyRing
from foveola.serve.options import ServeOptions
from foveola.serve.service import Served, Service

MODEL_HASH = "f" * 64
USAGE = Usage(
    prompt_tokens=30,
    visual_tokens=16,
    completion_tokens=3,
    images=(ImageUse((64, 48), (56, 56), 16),),
    stages=Stages(prefill_s=0.25, total_s=0.5),
)
PIECES = (Piece("划痕", 1), Piece(" in the\n", 1), Piece("middle", 1), Piece("", 0, finish="stop", usage=USAGE))


@dataclass
class FakeAnswer:
    """Answers with ``pieces``; waits for ``gate`` before each piece where one is set; raises ``error`` at its place."""

    pieces: tuple[Piece, ...] = PIECES
    gate: asyncio.Semaphore | None = None
    error: Exception | None = None
    error_at: int = 0
    asked: list[Request] = field(default_factory=list)
    running: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        self.asked.append(request)
        self.running += 1
        self.begun.set()
        try:
            for number, piece in enumerate(self.pieces):
                if self.error is not None and number == self.error_at:
                    raise self.error
                if self.gate is not None:
                    await self.gate.acquire()
                yield piece
        finally:
            self.running -= 1
            self.left.set()


def served(answer: Answer, **more: Any) -> Served:
    return Served("fake", MODEL_HASH, 1_700_000_000, answer, **more)


@dataclass
class Table:
    """A running application with a client and the fake behind it."""

    app: ASGIApp
    client: httpx.AsyncClient
    answer: FakeAnswer
    service: Service

    async def ask(self, prompt: Any, image: bytes | None = None, **request: Any) -> httpx.Response:
        """POST the multipart form."""
        files: dict[str, Any] = {"prompt": (None, json.dumps(prompt).encode(), "application/json")}
        if image is not None:
            files["image"] = ("part.png", image, "image/png")
        return await self.client.post("/v1/vlm/invoke", files=files, **request)

    async def ask_json(self, document: Any, **request: Any) -> httpx.Response:
        """POST the JSON form."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"content-type": "application/json", **request.pop("headers", {})}
        return await self.client.post("/v1/vlm/invoke", content=body, headers=headers, **request)


@asynccontextmanager
async def laid(
    answer: FakeAnswer | None = None,
    options: ServeOptions | None = None,
    load: Callable[[], Served] | None = None,
    clock: Callable[[], float] | None = None,
    ready: bool = True,
    ring: KeyRing | None = None,
) -> AsyncIterator[Table]:
    """The application in this process, started, its lifespan run as a server would."""
    answer = answer or FakeAnswer()
    service = Service(
        load or (lambda: served(answer)), options or ServeOptions(), **({"clock": clock} if clock is not None else {})
    )
    app = create_app(service, ring or NO_KEYS)
    service.start()
    if ready:
        assert service._loading is not None
        await service._loading
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://foveola") as client:
            yield Table(app, client, answer, service)
    finally:
        await service.stop()


def events(body: str) -> list[tuple[str, Any]]:
    """A stream of server-sent events as (name, decoded data); every event must have exactly both lines."""
    parsed = []
    for block in body.split("\n\n")[:-1]:
        name, data = block.split("\n")
        assert name.startswith("event: ") and data.startswith("data: ")
        parsed.append((name[7:], json.loads(data[6:])))
    assert body.endswith("\n\n")
    return parsed
