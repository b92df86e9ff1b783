"""The bridge inside of the server: keys make sources and reviewers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foveola.bridge.desk import Desk
from foveola.bridge.options import BridgeOptions
from foveola.options import BadSetting
from foveola.serve.app import create_app
from foveola.serve.bridge import open_desk
from foveola.serve.keys import NO_KEYS, Key, KeyRing
from foveola.serve.options import ServeOptions
from foveola.serve.service import Service
from tests.bridge.making import letters, plant
from tests.serve.fake import FakeAnswer, served

RING = KeyRing(
    (
        Key("key-scan-01", hashlib.sha256(b"scanner").digest()),
        Key("anna", hashlib.sha256(b"anna").digest(), frozenset({"ask", "admin"})),
    )
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.AsyncClient]:
    desk = Desk(BridgeOptions(sources=plant(tmp_path), data=tmp_path / "data"), encode=letters)
    app = create_app(Service(lambda: served(FakeAnswer()), ServeOptions()), RING, desk)
    yield httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://line")
    desk.close()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_a_key_is_the_source_and_reviews_need_another_role(client: httpx.AsyncClient) -> None:
    body = {"src_id": "scan-01", "text": "CMD=REWORK;LOT=L2417"}
    assert (await client.post("/v1/bridge/instructions", json=body)).status_code == 401
    spoofed = await client.post("/v1/bridge/instructions", json=body, headers=bearer("anna"))
    assert spoofed.status_code == 403
    assert spoofed.json()["error"]["code"] == "spoofed_source"
    done = await client.post("/v1/bridge/instructions", json=body, headers=bearer("scanner"))
    assert done.json()["resolved_intent"] == "REWORK"
    refused = await client.get("/v1/bridge/reviews", headers=bearer("scanner"))
    assert refused.status_code == 403
    assert refused.json()["error"]["message"] == "Reviews need a key with the role `admin`; this one has not."
    assert (await client.get("/v1/bridge/reviews", headers=bearer("anna"))).json()["reviews"] == []
    assert (await client.get("/review")).status_code == 200


def test_without_keys_there_is_no_bridge(tmp_path: Path) -> None:
    assert open_desk(BridgeOptions(), NO_KEYS) is None
    with pytest.raises(BadSetting, match="The bridge needs API keys: a source is who its key says"):
        open_desk(BridgeOptions(sources=plant(tmp_path)), NO_KEYS)
