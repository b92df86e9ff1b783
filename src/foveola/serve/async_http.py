"""One HTTP request on the event loop, its reply read as it comes: asyncio's streams under h11, which the server has."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import h11

CHUNK = 64 * 1024
SILENCE_S = 60.0  # a peer that says nothing for so long is gone
MAX_LINE = 4 * 1024 * 1024


class Reply:
    """A status, and a body that is read once."""

    def __init__(self, connection: h11.Connection, reader: asyncio.StreamReader, status: int) -> None:
        self.status = status
        self._connection = connection
        self._reader = reader

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises ``OSError`` where it is cut off."""
        while True:
            event = await next_event(self._connection, self._reader)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def read(self, limit: int = MAX_LINE) -> bytes:
        """The whole body, of at most ``limit`` bytes. Raises ``OSError``."""
        body = b""
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                raise OSError("the body is too long")
        return body

    async def lines(self) -> AsyncIterator[bytes]:
        """The body line by line, without line breaks. Raises ``OSError``."""
        rest = b""
        async for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > MAX_LINE:
                raise OSError("a line is too long")


async def next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    """The next event of a reply. Raises ``OSError`` where the peer breaks off, falls silent or talks nonsense."""
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(SILENCE_S):
                connection.receive_data(await reader.read(CHUNK))
    except h11.RemoteProtocolError:
        raise OSError("the peer broke off, or speaks no HTTP") from None
    if isinstance(event, h11.ConnectionClosed):
        raise OSError("the peer closed the connection")
    return event


@asynccontextmanager
async def exchanged(
    scheme: str, host: str, port: int, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> AsyncIterator[Reply]:
    """Send a request and enter with the head of its reply; leaving closes the connection, and so cancels what runs.

    Raises ``OSError`` (connection refused, timed out, broken) and nothing of a library.
    """
    context = ssl.create_default_context() if scheme == "https" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        given = {"host": f"{host}:{port}", "content-length": str(len(body)), "connection": "close", **headers}
        request = h11.Request(method=method, target=path or "/", headers=list(given.items()))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        head = await next_event(connection, reader)
        while isinstance(head, h11.InformationalResponse):
            head = await next_event(connection, reader)
        assert isinstance(head, h11.Response)
        yield Reply(connection, reader, head.status_code)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
