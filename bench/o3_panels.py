"""Pictures of every panel of the dashboard, from what a real Prometheus scraped of a real server.

    python bench/o3_panels.py            writes docs/images/panels/<panel>.png; some minutes

The server has guards, a second engine and two cameras. First all is quiet, then more ask at once and some send what is
no picture, then one camera begins to compress ten times as much. Drawn by matplotlib from the queries of the dashboard,
so that a person sees what they show; Grafana itself draws its own way.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from PIL import Image

from foveola.artifact import Bundle
from foveola.bench.plots import CONTENDERS, LINE, PLOT_STYLE
from foveola.bench.scraped import HOST, Prometheus, filled_in
from foveola.bench.server import ServerProcess
from foveola.bench.work import encoded
from foveola.cli import main as foveola
from foveola.drift.observation import Observation, observe
from foveola.drift.reference import calibrate
from foveola.engine.dual_confidence import fit
from foveola.engine.engine import Engine
from foveola.exchange import Request, Sampling, Turn
from foveola.observe import definitions as names
from foveola.observe.dashboards import PANELS, Panel
from foveola.observe.prometheus import Series
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import scenes

QUESTION = "What defect is on this surface?"
OUT = Path(__file__).parent.parent / "docs" / "images" / "panels"
CALIBRATED, SIDE_PX, STEP_S, RATE_S = 80, 224, 2.0, 20
UNITS = {"s": "seconds", "reqps": "per second", "percentunit": "share", "short": ""}


def surface(rng: np.random.Generator, quality: int | None = None) -> tuple[bytes, str]:
    """A generated part as a file, and the name of its defect."""
    one = scenes.scene(rng, SIDE_PX, SIDE_PX, counts=(0, 1))
    if quality is None:
        return encoded(one.pixels, "PNG"), one.names[0]
    held = io.BytesIO()
    Image.fromarray(one.pixels).save(held, "JPEG", quality=quality)
    return encoded(np.asarray(Image.open(io.BytesIO(held.getvalue())).convert("RGB")), "PNG"), one.names[0]


def prepared(folder: Path) -> dict[str, str]:
    """Settings of the server: a drift reference, a second engine with a confidence, a list of words."""
    bundle, rng = Bundle.open(embedded_bundle()), np.random.default_rng(1)
    engine = Engine.open(bundle)
    seen: list[Observation] = []
    scores, right = [], []
    for n in range(CALIBRATED):
        picture, name = surface(rng)
        pieces = list(engine.pieces(Request(str(n), (Turn("user", QUESTION, (picture,)),), Sampling(max_tokens=12))))
        text, usage = "".join(piece.text for piece in pieces), pieces[-1].usage
        assert usage is not None
        seen.append(observe("line", text, usage.evidence[0]))
        scores.append(sum(piece.logprob for piece in pieces))
        right.append(name in text)
    engine.close(0.0)
    calibrate(seen).save(folder / "line.npz")
    confidence = fit(scores, right, model_hash=bundle.model_hash, target_risk=0.4, delta=0.4).to_json()
    confidence["threshold"] = float(np.median(confidence["probabilities"]))
    (folder / "confidence.json").write_text(json.dumps(confidence), encoding="utf-8")
    (folder / "banned.txt").write_text("stain\n", encoding="utf-8")
    foveola(["guard", "words", str(folder / "banned.txt"), "--out", str(folder / "banned.words")])
    return {
        "FOVEOLA_SERVE_REGION": "hall 1", "FOVEOLA_DRIFT_REFERENCE": str(folder / "line.npz"),
        "FOVEOLA_GUARD_WORDS": str(folder / "banned.words"), "FOVEOLA_DUAL_BUNDLE": str(embedded_bundle()),
        "FOVEOLA_DUAL_CONFIDENCE": str(folder / "confidence.json"),
    }  # fmt: skip


@dataclass
class Line:
    """Clients that ask a server until they are told to stop."""

    port: int
    quality: int | None = None
    broken: bool = False
    busy: bool = False
    asked: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self, camera: str, seed: int, helps: bool) -> None:
        """One client: a picture after the other, each answer labelled. Who only ``helps`` leaves when all is quiet."""
        rng, connection = np.random.default_rng(seed), http.client.HTTPConnection(HOST, self.port, timeout=120)
        while not self.stop.is_set() and (self.busy or not helps):
            picture, name = surface(rng, self.quality if camera == "camera-2" else None)
            if self.broken and rng.random() < 0.2:
                picture = b"cut off on its way"
            status, told = _post(connection, "/v1/vlm/invoke", _asking(picture), camera)
            self.asked += 1
            if status == http.client.OK:
                label = json.dumps({"id": told["id"], "right": name in str(told["text"])}).encode()
                _post(connection, "/v1/feedback", ("application/json", label), camera)
        connection.close()


def _asking(picture: bytes) -> tuple[str, bytes]:
    prompt = json.dumps({"text": QUESTION, "max_tokens": 12})
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\nContent-Type: {}\r\n\r\n'
    body = head.format("prompt", "application/json").encode() + prompt.encode() + b"\r\n"
    body += head.format('image"; filename="a', "application/octet-stream").encode() + picture + b"\r\n--x--\r\n"
    return "multipart/form-data; boundary=x", body


def _post(
    connection: http.client.HTTPConnection, path: str, body: tuple[str, bytes], camera: str
) -> tuple[int, dict[str, object]]:
    connection.request("POST", path, body[1], {"content-type": body[0], "x-camera": camera})
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def shift(line: Line, seconds: float) -> None:
    """A quarter quiet, a quarter busy, and one camera that compresses for the rest."""
    threads = [_begin(line, "camera-1", 1), _begin(line, "camera-2", 2)]
    time.sleep(seconds / 4)
    line.broken = line.busy = True
    threads += [_begin(line, "camera-1", 3 + n, helps=True) for n in range(3)]
    time.sleep(seconds / 4)
    line.broken = line.busy = False
    line.quality = 10
    time.sleep(seconds / 2)
    line.stop.set()
    for thread in threads:
        thread.join()


def _begin(line: Line, camera: str, seed: int, *, helps: bool = False) -> threading.Thread:
    thread = threading.Thread(target=line.work, args=(camera, seed, helps), daemon=True)
    thread.start()
    return thread


def draw(panel: Panel, found: Sequence[tuple[str, list[Series]]]) -> bytes:
    """PNG of one panel."""
    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(6.4, 2.9), dpi=100, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(panel.title)
        DRAWN[panel.kind](axes, panel, found)
        held = io.BytesIO()
        figure.savefig(held, format="png")
    image = Image.open(io.BytesIO(held.getvalue())).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    small = io.BytesIO()
    image.save(small, "PNG", optimize=True)
    return small.getvalue()


def legend_of(pattern: str, series: Series) -> str:
    """What Grafana makes of a legend: ``{{label}}`` is the label's value."""
    return re.sub(r"{{(\w+)}}", lambda found: series.labels.get(found[1], ""), pattern)


def _lines(axes: Axes, panel: Panel, found: Sequence[tuple[str, list[Series]]]) -> None:
    drawn = [(legend_of(pattern, one), one) for pattern, series in found for one in series]
    for number, (name, one) in enumerate(drawn):
        at, values = zip(*one.points, strict=True)
        style = ("-", "--", ":")[number // len(CONTENDERS) % 3]
        axes.plot(_times(at), values, style, color=CONTENDERS[number % len(CONTENDERS)], label=name, linewidth=1.4)
    if panel.bound is not None:
        axes.axhline(panel.bound, color="#b3261e", linewidth=1)
    axes.set_ylabel(UNITS[panel.unit])
    axes.set_ylim(bottom=0)
    axes.grid(color=LINE, linewidth=0.6)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.tick_params(axis="x", labelsize=8)
    if drawn:
        axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _number(axes: Axes, panel: Panel, found: Sequence[tuple[str, list[Series]]]) -> None:
    axes.axis("off")
    last = [one.points[-1][1] for _, series in found for one in series]
    axes.text(0.5, 0.5, f"{sum(last):g}" if last else "no data", ha="center", va="center", fontsize=42)


def _heat(axes: Axes, panel: Panel, found: Sequence[tuple[str, list[Series]]]) -> None:
    (_, series), *_ = found
    rows = sorted(series, key=lambda one: float(one.labels["le"]))
    at = sorted({when for one in rows for when, _ in one.points})
    sums = np.array([[dict(one.points).get(when, np.nan) for when in at] for one in rows])
    own = np.diff(sums, axis=0, prepend=0)  # buckets are cumulative: Grafana takes them apart as well
    mesh = axes.pcolormesh(_times(at), np.arange(len(rows)), own, cmap="magma_r", shading="nearest")
    axes.set_yticks(range(len(rows)), [f"≤ {one.labels['le']}" for one in rows])
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))
    axes.tick_params(labelsize=8)
    axes.get_figure().colorbar(mesh, ax=axes, label="pictures per second")  # type: ignore[union-attr]


def _times(at: Sequence[float]) -> list[datetime]:
    return [datetime.fromtimestamp(one, UTC) for one in at]


DRAWN: dict[str, Callable[[Axes, Panel, Sequence[tuple[str, list[Series]]]], None]] = {
    "timeseries": _lines, "stat": _number, "heatmap": _heat,
}  # fmt: skip


def file_of(panel: Panel) -> str:
    """The name of a panel's picture."""
    return re.sub(r"[^a-z0-9]+", "-", panel.title.lower()).strip("-") + ".png"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, metavar="N", help="of work (default: 180)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="default: docs/images/panels")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess(None, 1, settings=prepared(folder)) as server:
            port = server.port()
            server.wait_ready()
            with Prometheus(folder, [port]) as prometheus:
                prometheus.wait_for(f"{names.QPS.series} == 0")
                began, line = time.time(), Line(port)
                shift(line, arguments.seconds)
                prometheus.wait_for(f"{names.QPS.series} == {line.asked}")
                for panel in PANELS:
                    asked = [(pattern, filled_in(query, interval_s=RATE_S)) for query, pattern in panel.queries]
                    found = [(pattern, prometheus.over(query, began, time.time(), STEP_S)) for pattern, query in asked]
                    (arguments.out / file_of(panel)).write_bytes(draw(panel, found))
                    print(f"{file_of(panel)}: {sum(len(series) for _, series in found)} series of {line.asked} answers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
