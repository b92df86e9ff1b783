"""Drift over HTTP and in the metrics: a watch fed with answers, a timeline, somebody who looks."""

from __future__ import annotations

import base64
import http.server
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveola.drift.observation import observe
from foveola.drift.options import DriftOptions
from foveola.drift.reference import calibrate
from foveola.drift.watch import DriftWatch
from foveola.exchange import NO_CAMERA, Damaged, Evidence, Usage
from foveola.observe import Metrics, Record
from foveola.serve.drift import watching
from tests.serve.fake import FakeAnswer, laid, served

Y, X = np.mgrid[0:6, 0:6]


def evidence(rng: np.random.Generator, at: float = 2.0) -> Evidence:
    y, x = rng.normal(at, 0.5, 2)
    weights = np.exp(-((Y - y) ** 2 + (X - x) ** 2) / 3) + 0.01
    weights /= weights.sum()
    return Evidence((6, 6), tuple(weights.ravel().tolist()), 1.0, tuple(rng.standard_normal(6).tolist()))


def record(n: int, found: Evidence, camera: str = "left") -> Record:
    return Record(f"r{n}", "answered", 0.1, usage=Usage(10, 36, 2, evidence=(found,)), text="scratch", client=camera)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("drift") / "line.npz"
    calibrate([observe("left", "scratch", evidence(rng)) for _ in range(200)]).save(path)
    return path


def drifted(watch: DriftWatch, metrics: Metrics) -> None:
    rng, take = np.random.default_rng(1), watching(watch, metrics)
    for n in range(60):
        take(record(n, evidence(rng, 4.5)))


async def test_drift_is_seen_acknowledged_and_counted(reference: Path, tmp_path: Path) -> None:
    watch = DriftWatch(DriftOptions(reference, tmp_path / "state.json"))
    metrics = Metrics(model_hash="0" * 64, region="hall")
    drifted(watch, metrics)
    async with laid(load=lambda: served(FakeAnswer(), drift=watch)) as table:
        told = (await table.client.get("/v1/drift")).json()
        looked = (await table.client.post("/v1/drift/left/acknowledge")).json()
        nobody = await table.client.post("/v1/drift/right/acknowledge")
    left = told["cameras"]["left"]
    assert left["frames"] == 60
    assert "looks" in left["raised"]
    assert left["shares"]["looks"] > 1
    first = told["timeline"][0]
    assert first["camera"] == "left"
    assert first["value"] > first["bound"]
    assert base64.b64decode(first["picture_png"]).startswith(b"\x89PNG")
    assert looked["cameras"]["left"]["raised"] == []
    assert looked["cameras"]["left"]["shares"]["looks"] == 0
    assert nobody.status_code == 404
    text = metrics.render().decode()
    assert (
        'foveola_drift_alarms_total{camera="left",chart="looks",model_version="000000000000",region="hall"} 1.0' in text
    )
    assert "foveola_drift_rule_mean{" in text


def test_a_camera_has_a_name_of_its_own_or_none(reference: Path) -> None:
    watch, rng = DriftWatch(DriftOptions(reference)), np.random.default_rng(1)
    take = watching(watch, Metrics(model_hash="0" * 64))
    for camera in ("line-7", NO_CAMERA, ""):
        take(replace(record(1, evidence(rng), camera="the key"), camera=camera))
    assert {name: standing.frames for name, standing in watch.standings().items()} == {"line-7": 1, "the key": 1}


async def test_the_camera_comes_in_a_header() -> None:
    async with laid() as table:
        for headers in ({"x-camera": " line-7 left "}, {}):
            await table.ask_json({"prompt": "a"}, headers=headers)
        refused = await table.ask_json({"prompt": "a"}, headers={"x-camera": "a" * 65})
        await table.ask_json({"prompt": "a"}, headers={"x-camera": "%E5%B7%A6"})
    assert [request.camera for request in table.answer.asked] == ["line-7 left", "", "左"]
    assert refused.status_code == 422
    assert "`X-Camera` is no name of at most 64 printed characters" in refused.json()["error"]["message"]


def test_a_full_disk_stops_neither_answers_nor_alarms(
    reference: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = DriftWatch(DriftOptions(reference, tmp_path / "gone" / "state.json"))
    metrics = Metrics(model_hash="0" * 64)
    drifted(watch, metrics)
    watch.save()
    assert "looks" in watch.standings()["left"].raised
    assert 'chart="looks",model_version="000000000000",region=""} 1.0' in metrics.render().decode()
    assert "The state of drift cannot be kept in state.json: No such file or directory" in caplog.text


async def test_a_restart_forgets_nothing(reference: Path, tmp_path: Path) -> None:
    options = DriftOptions(reference, tmp_path / "state.json")
    watch = DriftWatch(options)
    drifted(watch, Metrics(model_hash="0" * 64))
    watch.save()
    again = DriftWatch(options)
    assert again.standings()["left"].raised == watch.standings()["left"].raised
    assert again.standings()["left"].frames == 60
    assert [(event.alarm, event.frame) for event in again.timeline] == [
        (event.alarm, event.frame) for event in watch.timeline
    ]
    metrics = Metrics(model_hash="0" * 64)
    watching(again, metrics)  # an alert must not end because the server began anew
    shares = [line for line in metrics.render().decode().splitlines() if line.startswith("foveola_drift_share{")]
    assert max(float(line.rsplit(" ", 1)[1]) for line in shares) > 1


def test_a_timeline_that_is_none_is_told(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "state.json.timeline").write_text('[{"at": 1}]')
    with pytest.raises(Damaged, match="state.json.timeline is no timeline of drift; remove it"):
        DriftWatch(DriftOptions(reference, tmp_path / "state.json"))


def test_an_alarm_keeps_its_frame_unless_it_may_not(reference: Path) -> None:
    held = io.BytesIO()
    Image.new("RGB", (800, 600)).save(held, "JPEG")
    for frames in (True, False):
        watch, rng = DriftWatch(DriftOptions(reference)), np.random.default_rng(1)
        take = watching(watch, Metrics(model_hash="0" * 64), frames=frames)
        for n in range(60):
            take(replace(record(n, evidence(rng, 4.5)), image=held.getvalue()))
        kept = watch.timeline[0].frame
        assert (Image.open(io.BytesIO(kept)).size == (192, 144)) if frames else kept == b""


async def test_without_a_reference_it_says_so() -> None:
    async with laid() as table:
        response = await table.client.get("/v1/drift")
    assert response.status_code == 404
    assert "make a reference with `foveola drift calibrate`" in response.json()["error"]["message"]


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, object]], threading.Event]]:
    got: list[dict[str, object]] = []
    came = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            came.set()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", got, came
    server.shutdown()
    server.server_close()


def test_a_webhook_is_told(reference: Path, receiver: tuple[str, list[dict[str, object]], threading.Event]) -> None:
    address, got, came = receiver
    drifted(DriftWatch(DriftOptions(reference, webhook=address)), Metrics(model_hash="0" * 64))
    assert came.wait(20)
    assert got[0]["camera"] == "left"
    assert str(got[0]["picture_png"]).startswith("iVBOR")


def test_a_receiver_that_is_away_stops_nothing(reference: Path) -> None:
    watch = DriftWatch(DriftOptions(reference, webhook="http://127.0.0.1:9/"))
    drifted(watch, Metrics(model_hash="0" * 64))
    assert len(watch.timeline) >= 1


@pytest.mark.parametrize(("field", "value", "message"), [
    ("false_alarms", 0.0, "expected above 0"), ("cameras", 0, "expected at least 1"),
    ("webhook", "ftp://x", "expected an address that begins with http"),
])  # fmt: skip
def test_wrong_settings_are_told(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"`{field}`.*{message}"):
        DriftOptions(**{field: value})  # type: ignore[arg-type]
