from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from foveola.serve import log
from foveola.serve.log import JsonLines
from tests.serve.fake import FakeAnswer, laid


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The server's log as it would stand on stderr."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("foveola.serve")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.mark.parametrize("given", ["a", "job-7.b_C", "x" * 64])
async def test_a_sane_id_is_kept(given: str) -> None:
    async with laid() as table:
        response = await table.ask("a", headers={"x-request-id": given})
    assert response.headers["x-request-id"] == given == response.json()["id"]


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", 'a"b', "é".encode(), "../../etc"])
async def test_a_strange_id_is_replaced(given: str) -> None:
    async with laid() as table:
        response = await table.ask("a", headers={"x-request-id": given})
    assert len(response.headers["x-request-id"]) == 32
    assert response.headers["x-request-id"] == response.json()["id"]


async def test_every_reply_has_an_id_and_is_not_sniffed() -> None:
    async with laid() as table:
        for path in ("/health/live", "/nothing", "/v1/vlm/invoke", "/openapi.json"):
            response = await table.client.get(path)
            assert len(response.headers["x-request-id"]) == 32
            assert response.headers["x-content-type-options"] == "nosniff"


async def test_a_request_is_one_line(lines: io.StringIO) -> None:
    async with laid(FakeAnswer()) as table:
        lines.truncate(0)
        lines.seek(0)
        await table.ask("my secret", headers={"x-request-id": "job-1"})
        text = lines.getvalue()
    [line] = [json.loads(line) for line in text.splitlines()]
    assert line["event"] == "request"
    assert (line["id"], line["status"], line["finish"], line["prompt_tokens"]) == ("job-1", 200, "stop", 30)
    assert line["stages"]["total_s"] == 0.5
    assert 0 <= line["read_s"] * 1000 <= line["ms"]
    assert "secret" not in text


async def test_the_trace_of_a_failure_is_logged_with_the_requests_id(lines: io.StringIO) -> None:
    async with laid(FakeAnswer(error=RuntimeError("the cause"))) as table:
        await table.ask("a", headers={"x-request-id": "job-2"})
    [line] = [one for one in map(json.loads, lines.getvalue().splitlines()) if one["event"] == "unhandled"]
    assert line["id"] == "job-2"
    assert "RuntimeError: the cause" in line["trace"]


def test_what_asyncio_repeats_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio_log, root, own = (logging.getLogger(name) for name in ("asyncio", None, "foveola.serve"))
    told: list[str] = []
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(asyncio_log, "filters", [])
    levels = root.level, own.level
    try:
        log.configure()
        monkeypatch.setattr(root.handlers[0], "emit", lambda record: told.append(record.getMessage()))
        for _ in range(500):
            asyncio_log.error("socket.accept() out of system resource")
        asyncio_log.error("another")
    finally:
        root.setLevel(levels[0])
        own.setLevel(levels[1])
    assert told == ["socket.accept() out of system resource", "another"]


def test_foreign_logs_become_json_too() -> None:
    record = logging.LogRecord("uvicorn", logging.WARNING, "", 0, "line %s\n", ("a",), None)
    line = json.loads(JsonLines().format(record))
    assert (line["logger"], line["message"], line["level"]) == ("uvicorn", "line a\n", "warning")
    assert line["ts"].endswith("+00:00")


def test_an_event_keeps_its_fields(lines: io.StringIO) -> None:
    log.event(logging.WARNING, "full", queued=3)
    line = json.loads(lines.getvalue())
    assert (line["event"], line["queued"], line["level"]) == ("full", 3, "warning")
