from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from PIL import Image

from foveola.exchange import Invalid
from foveola.rollout.envoy import files_of, publish, routes
from tests.rollout.envoy_process import Envoy, release

ENDPOINTS = {"v1": ("127.0.0.1", 1), "v2": ("127.0.0.1", 2)}


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        told = {name: value for name, value in self.headers.items() if name.startswith("x-")}
        text = json.dumps({"bytes": len(body), **told}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = _reply

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def servers() -> Iterator[dict[str, tuple[str, int]]]:
    made = {name: ThreadingHTTPServer(("127.0.0.1", 0), _Echo) for name in ("v1", "v2")}
    for one in made.values():
        threading.Thread(target=one.serve_forever, daemon=True).start()
    yield {name: ("127.0.0.1", one.server_port) for name, one in made.items()}
    for one in made.values():
        one.shutdown()
        one.server_close()


def picture(width: int, height: int, kind: str) -> bytes:
    out = io.BytesIO()
    options = {"lossless": True} if kind == "WEBPL" else {}
    Image.new("RGB", (width, height), (90, 90, 90)).save(out, kind.removesuffix("L"), **options)  # type: ignore[arg-type]
    return out.getvalue()


def test_weights_must_be_per_cents() -> None:
    for weights in ({"v1": 80, "v2": 30}, {"v1": 120, "v2": -20}):
        with pytest.raises(Invalid, match="must be per cents that sum to 100"):
            routes(release(), weights)


def test_a_version_without_weight_has_no_route() -> None:
    table = routes(release(None), {"v1": 100, "v2": 0})["virtual_hosts"][0]["routes"]
    assert [one["name"] for one in table] == ["weighted"]
    assert [one["name"] for one in table[0]["route"]["weighted_clusters"]["clusters"]] == ["v1"]


def test_a_cluster_stays_as_long_as_old_routes_name_it(tmp_path: Path) -> None:
    publish(tmp_path, files_of(release(), {"v1": 80, "v2": 20}, ENDPOINTS))
    only = {"v1": ENDPOINTS["v1"]}

    def names() -> list[str]:
        return [one["name"] for one in json.loads((tmp_path / "cds.json").read_text())["resources"]]

    for expected in (["v1", "v2"], ["v1"]):
        publish(tmp_path, files_of(release(None), {"v1": 100}, only))
        assert names() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bootstrap.json", "cds.json", "rds.json"]


@pytest.mark.process
def test_weights_hold_and_change_without_a_failure(tmp_path: Path, servers: dict[str, tuple[str, int]]) -> None:
    with Envoy(tmp_path, servers) as envoy, httpx.Client(base_url=envoy.url, timeout=30.0) as client:
        got = Counter(client.get("/").headers["x-foveola-version"] for _ in range(200))
        assert abs(got["v1"] - 160) <= 4
        stop, failed, asked = threading.Event(), [], []

        def load() -> None:
            with httpx.Client(base_url=envoy.url, timeout=30.0) as mine:
                while not stop.is_set():
                    asked.append(1)
                    if mine.post("/", content=b"x" * 1000).status_code != 200:
                        failed.append(1)

        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        for weights in ({"v1": 50, "v2": 50}, {"v1": 0, "v2": 100}, {"v1": 100, "v2": 0}):
            already = len(asked)
            while len(asked) < already + 20 and not failed:
                time.sleep(0.01)
            envoy.publish(weights)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed
        assert len(asked) >= 60
        assert {client.get("/").headers["x-foveola-version"] for _ in range(20)} == {"v1"}
        # What Envoy cannot use, it does not use.
        (tmp_path / "staged").write_text("{no json")
        (tmp_path / "staged").replace(tmp_path / "rds.json")
        assert client.get("/").headers["x-foveola-version"] == "v1"


@pytest.mark.process
def test_wide_pictures_take_their_own_way(tmp_path: Path, servers: dict[str, tuple[str, int]]) -> None:
    with Envoy(tmp_path, servers) as envoy, httpx.Client(base_url=envoy.url, timeout=60.0) as client:
        envoy.publish({"v1": 100, "v2": 0})

        def version(**request: object) -> str:
            reply = client.post("/v1/vlm/invoke", **request)  # type: ignore[arg-type]
            assert reply.status_code == 200
            return str(reply.headers["x-foveola-version"])

        for kind in ("PNG", "JPEG", "WEBP", "WEBPL"):
            for size, expected in (((200, 100), "v2"), ((100, 200), "v2"), ((170, 100), "v1"), ((100, 100), "v1")):
                file = picture(*size, kind)
                assert version(files={"image": file, "prompt": (None, "{}")}) == expected, (kind, size)
                text = base64.b64encode(file).decode()
                assert version(json={"image": text, "prompt": "read"}) == expected, (kind, size)
                url = f"data:image/x;base64,{text}"
                assert version(json={"messages": [{"image_url": {"url": url}}]}) == expected
        spoofed = client.post("/", content=b"no picture", headers={"x-image-route": "wide", "x-foveola-turn": "99"})
        assert spoofed.headers["x-foveola-version"] == "v1"
        assert "x-image-route" not in spoofed.json()
        for junk in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff" + b"\xff" * 50, b"RIFF1234WEBPVP8X", b'{"image": "'):
            assert version(content=junk) == "v1"
        large = client.post("/", content=picture(200, 100, "PNG") + b"\0" * 25_000_000)
        assert large.json()["bytes"] > 25_000_000
        assert large.headers["x-foveola-version"] == "v2"
        assert client.post("/", content=b"\0" * 60_000_000).status_code == 413


@pytest.mark.process
def test_a_server_that_is_gone_is_not_told_to_clients(tmp_path: Path, servers: dict[str, tuple[str, int]]) -> None:
    broken = {**servers, "v2": ("127.0.0.1", 1)}
    with Envoy(tmp_path, broken) as envoy, httpx.Client(base_url=envoy.url, timeout=30.0) as client:
        codes = Counter(client.get("/").status_code for _ in range(50))
        assert codes[503] <= 12  # its own share: there is nowhere else to go
        envoy.publish({"v1": 100, "v2": 0})
        assert Counter(client.get("/").status_code for _ in range(50)) == {200: 50}
