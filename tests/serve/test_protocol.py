from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from foveola.serve.protocol import PatientProtocol

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Hasty(PatientProtocol):
    headers_s = 0.05


class Calm(PatientProtocol):
    headers_s = 60.0


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@asynccontextmanager
async def connected(
    kind: type[PatientProtocol], keep_alive_s: float = 60.0
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(hello, log_config=None, ws="none", timeout_keep_alive=keep_alive_s)  # type: ignore[arg-type]

    def made() -> PatientProtocol:
        return kind(config=config, server_state=ServerState(), app_state={})

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        try:
            yield reader, writer
        finally:
            writer.close()


def told(reply: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = reply.partition(b"\r\n\r\n")
    error: dict[str, Any] = json.loads(body)["error"]
    return int(head.split()[1]), error


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_half_a_head_is_not_waited_for_for_ever(begun: bytes) -> None:
    async with connected(Hasty) as (reader, writer):
        writer.write(begun)
        status, error = told(await reader.read())
    assert (status, error["code"]) == (408, "request_timeout")
    assert error["message"] == "The headers did not arrive within 0.05 s; send them at once."


async def test_half_a_head_after_a_request_is_not_waited_for_either() -> None:
    async with connected(Hasty) as (reader, writer):
        writer.write(GET)
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /")
        status, _ = told(await reader.read())
    assert status == 408


async def test_who_says_nothing_is_closed_as_one_who_has_asked_before() -> None:
    async with connected(Calm, keep_alive_s=0.05) as (reader, _):
        assert await reader.read() == b""


async def test_a_head_in_pieces_and_several_requests_are_answered() -> None:
    async with connected(Calm) as (reader, writer):
        for at in range(len(GET)):
            writer.write(GET[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
        writer.write(GET + GET + CLOSE)
        assert (await reader.read()).count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize(
    "noise", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000]
)
async def test_what_is_no_request_is_refused_in_our_form(noise: bytes) -> None:
    async with connected(Calm) as (reader, writer):
        writer.write(noise)
        status, error = told(await reader.read())
    assert (status, error["code"]) == (400, "bad_request")
    assert error["message"].startswith("What came is no HTTP/1.1 request that can be read")


async def test_nonsense_after_a_reply_closes_the_connection_only() -> None:
    async with connected(Calm) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
        writer.write(b"zz\r\n")
        assert await reader.read() == b""
