"""Plain ASGI from the server's side: what httpx cannot show (order of events, a client that leaves)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from starlette.types import ASGIApp, Message


class Call:
    """One request, driven by hand."""

    def __init__(
        self,
        app: ASGIApp,
        body: Iterable[bytes] = (),
        *,
        method: str = "POST",
        path: str = "/v1/vlm/invoke",
        query: str = "",
        headers: dict[str, str] | None = None,
        complete: bool = True,
    ) -> None:
        self.sent: list[Message] = []
        self.news = asyncio.Event()
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        for chunk in body:
            self._incoming.put_nowait({"type": "http.request", "body": chunk, "more_body": True})
        if complete:
            self._incoming.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.create_task(app(scope, self._incoming.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        self.news.set()
        await asyncio.sleep(0)

    def leave(self) -> None:
        """The client closes its connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def until(self, count: int) -> None:
        """Wait until ``count`` messages have been sent."""
        async with asyncio.timeout(10):
            while len(self.sent) < count:
                self.news.clear()
                await self.news.wait()

    async def done(self) -> Call:
        """Wait for the application to be through with the request."""
        async with asyncio.timeout(10):
            with suppress(asyncio.CancelledError):
                await self.task
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])
