"""Replacing weights over HTTP, with an engine that only remembers; the real one is in test_patch_real."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from foveola.exchange import Invalid
from foveola.serve.keys import Key, KeyRing
from foveola.serve.options import MIB, ServeOptions
from foveola.serve.service import Served
from tests.serve.fake import MODEL_HASH, FakeAnswer, Table, laid, served

PATCH, ROLLBACK, VERSIONS = "/v1/admin/patch", "/v1/admin/rollback", "/v1/admin/versions"
RING = KeyRing((Key("boss", hashlib.sha256(b"fov-boss").digest(), frozenset({"admin", "ask"})),))
BOSS = {"authorization": "Bearer fov-boss"}


@dataclass(frozen=True)
class Patched:
    module_path: str
    before: str
    model_hash: str
    tensors: int = 1
    graphs: tuple[str, ...] = ("vision",)
    seconds: float = 0.25
    probe: Mapping[str, float] = field(default_factory=lambda: {"features_cosine": 0.9})


class Engine:
    """Its hash counts the patches; a gate holds a patch up."""

    def __init__(self) -> None:
        self.hashes = [MODEL_HASH]
        self.got: list[tuple[str, dict[str, Any], bool]] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    @property
    def model_hash(self) -> str:
        return self.hashes[-1]

    def replace_submodule(self, module_path: str, new_state_dict: Mapping[str, Any], strict: bool = True) -> Patched:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(30)
        if module_path == "nothing":
            raise Invalid("module_path is 'nothing'; this model has no such part.", field="module_path")
        self.got.append((module_path, dict(new_state_dict), strict))
        self.hashes.append(f"{len(self.hashes)}" * 64)
        return Patched(module_path, self.hashes[-2], self.hashes[-1])

    def rollback(self) -> Patched:
        if len(self.hashes) == 1:
            raise Invalid("There is no patch to take back.")
        before = self.hashes.pop()
        return Patched("", before, self.hashes[-1], 0, (), 0.0, {})


def safetensors(**tensors: np.ndarray[Any, Any]) -> bytes:
    header, data = {}, b""
    for name, array in tensors.items():
        raw = array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = safetensors(weight=np.arange(6).reshape(2, 3))


def form(weights: bytes | None = GOOD, **fields: str) -> dict[str, Any]:
    parts: dict[str, Any] = {name: (None, value.encode()) for name, value in fields.items()}
    return parts if weights is None else {**parts, "weights": ("new.safetensors", weights)}


def table(engine: Engine, answer: FakeAnswer | None = None, **more: Any) -> Any:
    answer = answer or FakeAnswer()

    def load() -> Served:
        return served(answer, patching=engine)

    return laid(answer, load=load, ring=RING, **more)


async def test_a_patch_a_look_and_a_rollback() -> None:
    engine = Engine()
    async with table(engine) as laid_table:
        client = laid_table.client
        done = await client.post(PATCH, files=form(module_path="visual", strict="false"), headers=BOSS)
        assert done.status_code == 200, done.text
        [(module_path, tensors, strict)] = engine.got
        assert (module_path, strict) == ("visual", False)
        assert np.array_equal(tensors["weight"], np.arange(6, dtype=np.float32).reshape(2, 3))
        assert done.json()["model_hash"] == "1" * 64
        assert (done.json()["before"], done.json()["who"]) == (MODEL_HASH, "boss")
        assert (await client.get("/version")).json()["model_hash"] == "1" * 64
        assert (await client.get("/v1/models", headers=BOSS)).json()["data"][0]["model_hash"] == "1" * 64
        assert (await laid_table.ask("a", headers=BOSS)).json()["model_hash"] == "1" * 64
        back = await client.post(ROLLBACK, headers=BOSS)
        assert back.json()["model_hash"] == MODEL_HASH
        versions = (await client.get(VERSIONS, headers=BOSS)).json()
        assert [change["kind"] for change in versions["changes"]] == ["rollback", "patch"]
        assert (versions["model_hash"], versions["bundle_hash"]) == (MODEL_HASH, MODEL_HASH)
        assert (await client.post(ROLLBACK, headers=BOSS)).status_code == 422


async def test_a_disk_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = Engine()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    async with table(engine) as laid_table:
        failed = await laid_table.client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
        monkeypatch.setattr(tempfile, "tempdir", None)
        again = await laid_table.client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, "unavailable")
    assert "(No such file or directory), and nothing has changed; make room" in failed.json()["error"]["message"]
    assert (again.status_code, len(engine.got)) == (200, 1)


async def test_a_name_that_is_no_text_is_told_back() -> None:
    class Unfit(Engine):
        def replace_submodule(
            self, module_path: str, new_state_dict: Mapping[str, Any], strict: bool = True
        ) -> Patched:
            raise Invalid(f"There is no {', '.join(new_state_dict)}.", field="new_state_dict")

    async with table(Unfit()) as laid_table:
        weights = safetensors(**{"half \ud800": np.zeros(1)})
        refused = await laid_table.client.post(PATCH, files=form(weights, module_path="visual"), headers=BOSS)
    assert (refused.status_code, refused.json()["error"]["message"]) == (422, "There is no half \ud800.")


async def test_strict_is_the_default() -> None:
    engine = Engine()
    async with table(engine) as laid_table:
        await laid_table.client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
    assert engine.got[0][2] is True


BAD: list[tuple[dict[str, Any], int, str | None]] = [
    (form(None, module_path="visual"), 400, "weights"),
    (form(), 400, "module_path"),
    (form(module_path="visual", strict="perhaps"), 422, "strict"),
    (form(module_path="x" * 2000), 422, "module_path"),
    (form(module_path="nothing"), 422, "module_path"),
    (form(module_path="visual", other="1"), 422, "other"),
    (form(b"", module_path="visual"), 422, "weights"),
    (form(GOOD[:-1], module_path="visual"), 422, "weights"),
    (form(b"\x80\x04\x95 pickle", module_path="visual"), 422, "weights"),
    (form(struct.pack("<Q", 2**62) + b"{}", module_path="visual"), 422, "weights"),
]


@pytest.mark.parametrize(("files", "status", "param"), BAD, ids=range(len(BAD)))
async def test_what_is_wrong_changes_nothing(files: dict[str, Any], status: int, param: str | None) -> None:
    engine = Engine()
    async with table(engine) as laid_table:
        response = await laid_table.client.post(PATCH, files=files, headers=BOSS)
        versions = (await laid_table.client.get(VERSIONS, headers=BOSS)).json()
    assert response.status_code == status, response.text
    assert response.json()["error"].get("field") == param
    assert "foveola-patch" not in response.text
    assert "/" not in response.json()["error"]["message"]
    assert (engine.got, versions["changes"]) == ([], [])


async def test_limits_and_forms() -> None:
    engine = Engine()
    options = ServeOptions(max_patch_bytes=100)
    async with table(engine, options=options) as laid_table:
        client: httpx.AsyncClient = laid_table.client
        big = await client.post(PATCH, files=form(b"x" * 200_000, module_path="visual"), headers=BOSS)
        part = await client.post(PATCH, files=form(b"x" * 200, module_path="visual"), headers=BOSS)
        kind = await client.post(PATCH, json={}, headers=BOSS)
    assert [one.status_code for one in (big, part, kind)] == [413, 413, 415]
    assert engine.got == []
    assert ServeOptions().max_patch_bytes > 1000 * MIB


async def test_one_change_at_a_time() -> None:
    import asyncio

    engine = Engine()
    engine.gate = threading.Event()
    async with table(engine) as laid_table:
        client = laid_table.client
        first = asyncio.create_task(client.post(PATCH, files=form(module_path="visual"), headers=BOSS))
        assert await asyncio.to_thread(engine.entered.wait, 30)
        second = await client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
        back = await client.post(ROLLBACK, headers=BOSS)
        asked = await laid_table.ask("a", headers=BOSS)  # answers go on meanwhile
        engine.gate.set()
        assert (await first).status_code == 200
    assert (second.status_code, second.json()["error"]["code"]) == (409, "conflict")
    assert back.status_code == 409
    assert asked.status_code == 200


async def test_an_answer_tells_the_weights_that_gave_it() -> None:
    from dataclasses import replace

    from foveola.exchange import Piece
    from tests.serve.fake import USAGE

    old = "0" * 64
    answer = FakeAnswer(pieces=(Piece("a", 1), Piece("", 1, finish="stop", usage=replace(USAGE, model_hash=old))))
    engine = Engine()
    async with table(engine, answer) as laid_table:
        await laid_table.client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
        reply = (await laid_table.ask("a", headers=BOSS)).json()
    assert reply["model_hash"] == old


async def test_what_cannot_be_patched_says_so() -> None:
    async with laid(ring=RING) as laid_table:
        response = await laid_table.client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
    assert response.status_code == 404
    assert "cannot be replaced while it serves" in response.json()["error"]["message"]


async def test_replies_are_what_the_document_says() -> None:
    from tests.serve.test_describe import check, document_of

    async with table(Engine()) as laid_table:
        document = await document_of(laid_table)
        done = await laid_table.client.post(PATCH, files=form(module_path="visual"), headers=BOSS)
        check(done.json(), "Change", document)
        check((await laid_table.client.get(VERSIONS, headers=BOSS)).json(), "Versions", document)
    assert isinstance(laid_table, Table)


def test_the_command_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from foveola.cli import main

    assert main(["patch", "--versions", "--url", "http://127.0.0.1:9"]) == 2
    assert "No server of this kind answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert main(["patch", str(tmp_path / "none.safetensors"), "--module-path", "visual"]) == 2
    assert "none.safetensors cannot be read" in capsys.readouterr().err
    assert main(["patch", "--rollback", "--url", "ftp://a"]) == 2
    assert "is no address of a server" in capsys.readouterr().err
    assert main(["patch", "--rollback", "--key-file", str(tmp_path / "none")]) == 2
    assert "The key in none cannot be read" in capsys.readouterr().err
