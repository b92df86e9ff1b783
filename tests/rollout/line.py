"""A shift on a line, told as it happens: ``make demo-line``.

Everything is real but the pods and the models: broker, MES consumer, bridge with its encoder, Envoy, Prometheus, the
operator, two servers. The cluster is the emulated API; what a kubelet would do (mount a ConfigMap) this script does.
"""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageDraw
from rich.console import Console

from foveola.bridge.context import Event
from foveola.bridge.desk import Desk
from foveola.bridge.encoder import Encoder, e5_encoder
from foveola.bridge.options import BridgeOptions
from foveola.bridge.payload import RawInstruction
from foveola.rollout.crd import crds
from tests.bridge.broker import PATIENCE_S, Broker, free_port
from tests.bridge.making import plant
from tests.bridge.mes_child import __file__ as mes_file
from tests.rollout.envoy_process import Envoy
from tests.rollout.making import ROOT, Lab, canary, model
from tests.serve.process import Process

Tell = Callable[[str], None]


def picture(index: int) -> bytes:
    """A camera's picture: a plate with a scratch somewhere."""
    image = Image.new("RGB", (224, 224), (120, 124, 128))
    pen = ImageDraw.Draw(image)
    pen.line((20 + index % 60, 40, 160, 180 - index % 50), fill=(210, 210, 215), width=3)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


def until(what: str, condition: Callable[[], Any]) -> None:
    """Wait for it; what is not to come fails with its name."""
    deadline = time.monotonic() + 3 * PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come to this: {what}")
        time.sleep(0.1)


@contextmanager
def prometheus(folder: Path, targets: dict[str, int]) -> Iterator[str]:
    """The real Prometheus, which scrapes each version's server once a second with the labels that pods would bring."""
    binary = shutil.which("prometheus")
    if binary is None:
        raise FileNotFoundError("prometheus is not installed")
    jobs = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "plant", "vlm": "ocr", "version": name}}
        for name, port in targets.items()
    ]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "line", "static_configs": jobs}]}
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [binary, f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error",
             f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    process = subprocess.Popen(words)
    try:
        until("Prometheus is ready", lambda: _ok(f"{url}/-/ready"))
        yield url
    finally:
        process.kill()
        process.wait()


def _ok(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False


class Line:
    """All that stands in the hall, and what its people see."""

    def __init__(self, folder: Path, tell: Tell, encode: Encoder) -> None:
        self.folder, self.tell, self._encode = folder, tell, encode
        self.stack = ExitStack()
        self.seen: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Line:
        enter = self.stack.enter_context
        self.broker = enter(Broker())
        self.desk = Desk(
            BridgeOptions(sources=plant(self.folder), data=self.folder / "bridge", bootstrap=self.broker.bootstrap),
            encode=self._encode,
        )
        self.stack.callback(self.desk.close)
        self.ledger = self.folder / "mes.db"
        mes = subprocess.Popen(
            [sys.executable, mes_file, str(self.ledger), self.broker.bootstrap], stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )  # fmt: skip
        self.stack.callback(mes.wait)
        self.stack.callback(mes.kill)
        self.ports = {}
        for version, kind in (("v1", "good"), ("v2", "bad")):
            process = enter(Process("-m", "tests.rollout.line_server", version, kind))
            with process.ready() as client:
                self.ports[version] = int(client.base_url.port or 0)
        self.prometheus = enter(prometheus(self.folder, self.ports))
        self.lab = enter(Lab(self.folder))
        self.lab.apply({"apiVersion": "v1", "kind": "List", "items": list(crds())})
        self.lab.operate(self.prometheus)
        endpoints = {name: ("127.0.0.1", port) for name, port in self.ports.items()}
        self.envoy = enter(Envoy(self.folder / "xds", endpoints))
        self.envoy.publish({"v1": 100, "v2": 0})
        self._client = enter(httpx.Client(base_url=self.envoy.url, timeout=60.0))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.stack.close()

    def instruct(self, src: str, text: str, id: str) -> Any:
        """A device hands in an instruction."""
        now = time.time()
        found = self.desk.take(RawInstruction(id, src, f"key-{src}", text, now, now))
        told = found.resolved_intent or f"{found.candidates[0].intent}, which this source may not cause"
        self.tell(f"  {src}: “{text}” → {told}: {found.verdict} (ambiguity {found.ambiguity_score:.2f})")
        return found

    def effects(self) -> list[tuple[str, str]]:
        """What the MES has carried out: (intent, lot)."""
        if not self.ledger.is_file():
            return []
        with sqlite3.connect(self.ledger) as base:
            try:
                rows = base.execute("SELECT intent, entities FROM effects ORDER BY position").fetchall()
            except sqlite3.OperationalError:  # it is just being made
                return []
        return [(intent, json.loads(entities).get("lot", "")) for intent, entities in rows]

    def look(self, index: int) -> None:
        """A camera asks about a picture."""
        reply = self._client.post(
            "/v1/vlm/invoke", files={"image": ("a.jpg", picture(index), "image/jpeg")},
            data={"prompt": json.dumps({"text": "what is wrong?"})},
        )  # fmt: skip
        version = reply.headers.get("x-foveola-version", "none")
        self.seen[version] += 1
        if reply.status_code != 200:
            self.failed[version] += 1
            return
        now = time.time()
        self.desk.observe(Event("ocr-01", "ST04", "object", reply.json()["text"], now, now))

    def keep_looking(self) -> None:
        """Cameras go on in the background; the weights that the operator decides reach Envoy as they change."""

        def cameras() -> None:
            index = 0
            while not self._stop.is_set():
                self.look(index)
                index += 1
                self._stop.wait(0.02)

        def kubelet() -> None:
            known = ""
            while not self._stop.is_set():
                found = self.lab.api.find("configmaps", "ocr-envoy")
                if found is not None and found["data"]["rds.json"] != known:
                    known = found["data"]["rds.json"]
                    self.envoy.write({"v1": 100, "v2": 0}, known)
                self._stop.wait(0.2)

        for work in (cameras, kubelet):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)


def tell_story(folder: Path, tell: Tell, encode: Encoder) -> dict[str, Any]:
    """The whole shift; returns what can be counted at its end. Raises AssertionError where it goes otherwise."""
    with Line(folder, tell, encode) as line:
        tell("Cameras look at parts; the old version answers.")
        for index in range(20):
            line.look(index)
        assert line.seen == {"v1": 20}, line.seen
        tell("Lot L2417 enters station ST04. A scanner, an AGV and a voice station speak.")
        now = time.time()
        line.desk.observe(Event("scan-01", "ST04", "lot", "L2417", now - 60, now - 60))
        line.instruct("scan-01", "CMD=REWORK;LOT=L2417", "i1")
        line.instruct("agv-07", "AGV07 搬运L2417 ST04→ST05", "i2")
        line.instruct("voice-03", "马上停线，有人受伤", "i3")
        denied = line.instruct("voice-03", "把这批扣住", "i4")
        until("the MES has carried out three commands", lambda: len(line.effects()) == 3)
        tell(f"The MES has carried out: {', '.join(intent for intent, _ in line.effects())}.")

        tell("Lot L2418 enters, and in that moment a tag is read: “HOLD TAG this lot”. Which one?")
        now = time.time()
        line.desk.observe(Event("scan-01", "ST04", "lot", "L2418", now, now))
        asked = line.instruct("ocr-01", "HOLD TAG this lot", "i5")
        (review,) = line.desk.reviews.list()
        line.desk.reviews.claim(review.id, "anna")
        line.desk.reviews.decide(review.id, "anna", "LOT_HOLD", lot="L2417", reason="asked the shift leader")
        until("the hold is carried out", lambda: ("LOT_HOLD", "L2417") in line.effects())
        tell("  Anna asked and decided: L2417. The MES holds it; the audit log has it.")

        tell("A new version is declared, as a canary of 20 %. It is a bad one.")
        analysis = {"minRequests": 5, "failures": 2, "maxErrorRate": 0.05, "maxLatencySeconds": 30}
        line.keep_looking()
        line.lab.apply(model(canary=canary(steps=[20, 50], intervalSeconds=600, analysis=analysis)))
        until("the canary gets requests", lambda: line.seen["v2"] > 5)
        tell(f"  It answers its share: {dict(line.seen)}, failures {dict(line.failed)}.")
        until("the canary is rolled back", lambda: (line.lab.status().get("canary") or {}).get("phase") == "RolledBack")
        reason = line.lab.status()["canary"]["reason"]
        tell(f"  Rolled back: {reason}.")
        until("Envoy has it", lambda: _settled(line))
        refused = 'sum(foveola_refused_total{version="v2"})'
        until("Prometheus has its errors", lambda: _query(line.prometheus, refused) > 0)
        tell(f"  Its errors, which Envoy tried again: {_query(line.prometheus, refused):g}.")
        tell("Traffic is back on the old version. Nobody was called.")
        shown = line.lab.kubectl("get", "vlm")
        tell(shown.rstrip())
        figures = line.desk.metrics().decode()
        tell("\n".join(row for row in figures.splitlines() if row.startswith("bridge_") and "_created" not in row))
        return {
            "effects": line.effects(), "denied": denied.verdict, "asked": asked.verdict, "reason": reason,
            "audit": line.desk.reviews.verify(), "metrics": figures, "table": shown, "failed": dict(line.failed),
            "refused": _query(line.prometheus, refused),
        }  # fmt: skip


def _settled(line: Line) -> bool:
    before = line.seen["v2"]
    after = line.seen["v1"] + 20
    until("cameras go on", lambda: line.seen["v1"] >= after)
    return line.seen["v2"] == before


def _query(url: str, query: str) -> float:
    result = httpx.get(f"{url}/api/v1/query", params={"query": query}).json()["data"]["result"]
    return float(result[0]["value"][1]) if result else 0.0


def main() -> int:
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        tell_story(Path(folder), lambda text: console.print(text, markup=False), e5_encoder())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
