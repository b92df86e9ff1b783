"""What the person on call looks at: the guards' log, and the split of traffic by version."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator

import pytest

from foveola.guard.verdict import Verdict
from foveola.observe.fleet import QUERIES
from foveola.serve.options import ServeOptions
from foveola.serve.watchers import KEPT, VerdictLog
from tests.serve.fake import FakeAnswer, laid, served


async def test_the_guard_log_tells_the_newest_first_and_not_what_passed() -> None:
    log = VerdictLog()
    for n in range(KEPT + 1):
        log(Verdict("words", "masked", f"r{n}", "/v1/vlm/invoke", {"hits": n}))
    log(Verdict("words", "passed", "quiet", "/v1/vlm/invoke"))
    async with laid(load=lambda: served(FakeAnswer(), verdicts=log)) as table:
        told = (await table.client.get("/v1/verdicts")).json()["verdicts"]
    assert len(told) == KEPT
    assert (told[0]["id"], told[0]["outcome"], told[0]["detail"]) == (f"r{KEPT}", "masked", {"hits": KEPT})
    assert told[-1]["id"] == "r1"


async def test_without_guards_the_log_is_empty() -> None:
    async with laid() as table:
        assert (await table.client.get("/v1/verdicts")).json() == {"verdicts": []}


@pytest.fixture
def prometheus() -> Iterator[str]:
    """Replies to the queries of ``fleet`` as Prometheus would; tests/observe/test_scraped.py asks the real one."""
    values = {
        "requests_per_s": {"old": "9", "new": "1"}, "refused_per_s": {"old": "0", "new": "0.5"},
        "p95_s": {"old": "0.2", "new": "NaN"}, "samples": {"old": "120", "new": "0"}, "accuracy": {"old": "0.9"},
    }  # fmt: skip
    field_of = {query: field for field, query in QUERIES.items()}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["query"][0]
            found = [
                {"metric": {"model_version": version}, "value": [0, value]}
                for version, value in values[field_of[query]].items()
            ]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "success", "data": {"result": found}}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def test_the_split_is_that_of_prometheus(prometheus: str) -> None:
    async with laid(options=ServeOptions(prometheus=prometheus)) as table:
        old, new = (await table.client.get("/v1/split")).json()["versions"]
    assert (old["model_version"], old["share"], old["accuracy"], old["samples"]) == ("old", 0.9, 0.9, 120)
    assert (new["model_version"], new["share"], new["refused_per_s"]) == ("new", 0.1, 0.5)
    assert new["p95_s"] is new["accuracy"] is None


@pytest.mark.parametrize(("address", "status", "message"), [
    ("", 404, "set `prometheus` to the address"), ("http://127.0.0.1:9", 503, "does not answer"),
])  # fmt: skip
async def test_a_prometheus_that_is_not_there_is_told(address: str, status: int, message: str) -> None:
    async with laid(options=ServeOptions(prometheus=address)) as table:
        reply = await table.client.get("/v1/split")
    assert reply.status_code == status
    assert message in reply.json()["error"]["message"]


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="`prometheus` is 'prometheus:9090'; expected an address that begins with"):
        ServeOptions(prometheus="prometheus:9090")
