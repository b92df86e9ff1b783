"""The real Prometheus scrapes the real server: every panel's query, the variables, the rules."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foveola.bench.scraped import Prometheus, filled_in
from foveola.cli import main
from foveola.observe import definitions as names
from foveola.observe.alerts import ALERTS
from foveola.observe.command import RULES
from foveola.observe.dashboards import dashboard
from foveola.observe.fleet import versions
from tests.serve.process import ROOT, Process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]
ASKED = 4
SILENT = {  # panels about what this server does not have or what did not happen
    "Verdicts of the guards", "Which engine answered", "Drift: share of the bound", "Drift: alarms",
    "Described rule: mean cosine",
}  # fmt: skip


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, httpx.Client]]:
    """The embedded model, asked a few times, one answer labelled, one picture refused; and who scrapes it."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    assert main(["observe", "export", str(folder)]) == 0
    port = "0"
    with Process("-m", "foveola", "serve", "--port", port, env={"FOVEOLA_SERVE_REGION": "hall 1"}) as process:
        client = process.ready()
        assert client.base_url.port is not None
        with client, Prometheus(folder, [client.base_url.port], rules=folder / RULES) as prometheus:
            prometheus.wait_for(f"{names.QPS.series} == 0")  # a rate needs to have seen the beginning
            picture = (ROOT / "examples/surface.png").read_bytes()
            prompt = (None, b'{"text": "What defect is on this surface?"}', "application/json")
            form = {"prompt": prompt, "image": ("a.png", picture, "image/png")}
            replies = [client.post("/v1/vlm/invoke", files=form).json() for _ in range(ASKED)]
            refused = client.post("/v1/vlm/invoke", files={"prompt": prompt, "image": ("a.png", b"none", "image/png")})
            assert refused.status_code == 400
            assert client.post("/v1/feedback", json={"id": replies[0]["id"], "right": True}).status_code == 200
            prometheus.wait_for(f"{names.QPS.series} == {ASKED + 1} and {names.ACCURACY_SAMPLES.series} == 1")
            yield prometheus, client


def test_every_panel_is_answered(scraped: tuple[Prometheus, httpx.Client]) -> None:
    prometheus, _ = scraped
    empty = set()
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            if not prometheus.query(filled_in(target["expr"], interval_s=600)):  # what it cannot parse, it says
                empty.add(panel["title"])
    assert empty == SILENT


def test_every_series_is_a_definition(scraped: tuple[Prometheus, httpx.Client]) -> None:
    prometheus, _ = scraped
    known = {d.name + end for d in names.ALL for end in ("", "_total", "_bucket", "_sum", "_count", "_created")}
    found = {name for name in prometheus.values_of("__name__") if re.match(r"ocr_|foveola_(?!http)", name)}
    assert found <= known
    assert {d.series for d in names.ALL if not d.labels} <= found


def test_variables_have_values(scraped: tuple[Prometheus, httpx.Client]) -> None:
    prometheus, client = scraped
    assert prometheus.values_of("region") == ["hall 1"]
    assert prometheus.values_of("model_version") == [client.get("/version").json()["model_hash"][:12]]


def test_the_accuracy_stands_beside_its_samples(scraped: tuple[Prometheus, httpx.Client]) -> None:
    prometheus, _ = scraped
    [rate], [samples] = (prometheus.query(d.series) for d in (names.ACCURACY, names.ACCURACY_SAMPLES))
    assert (rate.points[0][1], samples.points[0][1]) == (1.0, 1.0)


def test_the_rules_are_loaded_and_quiet(scraped: tuple[Prometheus, httpx.Client]) -> None:
    prometheus, _ = scraped
    assert "firing" not in prometheus.alerts().values()  # one of five was refused: that alone waits for five minutes
    for alert in ALERTS:
        prometheus.query(alert.expr)


def test_what_cannot_be_parsed_is_told(scraped: tuple[Prometheus, httpx.Client]) -> None:
    with pytest.raises(ValueError, match="parse error"):
        scraped[0].query("sum(")


def test_the_split_is_told_by_version(scraped: tuple[Prometheus, httpx.Client]) -> None:
    prometheus, client = scraped
    [one] = versions(prometheus)
    assert one.model_version == client.get("/version").json()["model_hash"][:12]
    assert (one.share, one.accuracy, one.samples) == (1.0, 1.0, 1.0)
    assert one.requests_per_s is not None and one.refused_per_s is not None and one.requests_per_s > one.refused_per_s
