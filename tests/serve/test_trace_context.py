"""W3C trace context on its way through: in from the client, out to the other server and the vision service."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from foveola.engine.travel import Look
from foveola.exchange import Request, Turn, Unavailable
from foveola.observe.context import TraceContext, own_context
from foveola.serve.afar import RemoteAnswer, VisionClient
from tests.serve.fake import FakeAnswer, laid, served

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.mark.parametrize(("traces", "given"), [(True, PARENT), (True, ""), (False, PARENT), (False, "none")])
async def test_the_span_that_goes_on_is_our_own_or_the_clients(traces: bool, given: str) -> None:
    async with laid(load=lambda: served(answer, traces=traces)) as table:
        headers = {"traceparent": given, "x-request-id": "r1"}
        assert (await table.ask_json({"prompt": "a"}, headers=headers)).status_code == 200
    [asked] = answer.asked
    assert asked.trace == given
    if traces:
        assert asked.span == str(own_context(given, "r1"))
    else:
        assert asked.span == (given if TraceContext.of(given) else "")


answer = FakeAnswer()


@pytest.fixture(autouse=True)
def nobody_asked_yet() -> None:
    answer.asked.clear()


def test_it_goes_out_in_the_header() -> None:
    got: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, b'{"data": [{"id": "large", "model_hash": "00"}]}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            got.append(self.headers.get("traceparent"))
            self._reply(503, b"{}")

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for span in (PARENT, ""):
        with pytest.raises(Unavailable):
            VisionClient(url)(Look((b"picture",), span=span))
        with pytest.raises(Unavailable):
            asyncio.run(_asked(RemoteAnswer(url), Request("r", (Turn("user", "a"),), span=span)))
    server.shutdown()
    server.server_close()
    assert got == [PARENT, PARENT, None, None]


async def _asked(other: RemoteAnswer, request: Request) -> None:
    async for _ in other(request):
        pass
