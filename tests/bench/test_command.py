"""The whole command, quickly, on a small random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola import cli
from tests.bench.scripts import load

pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.slow]


def test_a_quick_run_gives_table_json_and_page(
    random_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="the bench door is not installed")
    page = tmp_path / "page.html"
    given = ["--bundle", str(random_bundle), "--checkpoint", str(random_bundle.parent / "checkpoint")]
    argv = ["bench", *given, "--quick", "--requests", "3", "--concurrency", "1,2", "--json", "--html", str(page)]
    assert cli.main(argv) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["format"] == "foveola.bench/1"
    names = [(row["contender"], row["batch"]) for row in report["rows"]]
    assert names == [(name, batch) for batch in (1, 2) for name in ("foveola", "foveola HTTP", "transformers")]
    for row in report["rows"]:
        assert 0 < row["ttft_ms_p50"] <= row["latency_ms_p50"] <= row["latency_ms_p95"] <= row["latency_ms_p99"]
        assert row["images_per_s"] > 0
        assert row["peak_memory_mib"] > 30
    assert {(one["rival"], one["batch"]) for one in report["ratios"]} == {
        (name, batch) for batch in (1, 2) for name in ("foveola HTTP", "transformers")
    }
    assert report["model"]["name"] == "random"
    ours = next(one for one in report["agreement"] if one["contender"] == "foveola HTTP")
    assert ours["count"] == 3
    assert "data:image/svg+xml;base64," in page.read_text(encoding="utf-8")


def test_the_table_without_rivals(random_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--bundle", str(random_bundle), "--quick", "--requests", "2", "--rivals", "none"]) == 0
    shown = capsys.readouterr().out
    assert "P50 / P95 / P99 ms" in shown
    assert "foveola HTTP takes" in shown
    assert "transformers" not in shown


def test_a_script_runs_quickly_and_writes_where_it_is_told(random_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "overhead.json"
    script = load("s1_http_overhead").SCRIPT
    assert script.main(tmp_path, ["--quick", "--bundle", str(random_bundle), "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert document["figures"]["requests"] == 10
    assert document["figures"]["added_ms"]["p50"] > 0
    assert [bar["bar"] for bar in document["bars"]] == ["<= 3"]
    assert not (tmp_path / "results").exists()


def test_the_start_is_timed_and_the_first_answer_judged(random_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "startup.json"
    script = load("s1_startup").SCRIPT
    given = ["--quick", "--bundle", str(random_bundle), "--out", str(out), "--expect", "nobody says this"]
    assert script.main(tmp_path, given) == 0
    document = json.loads(out.read_text())
    assert 0 < document["figures"]["ready_s"][0] < document["figures"]["first_answer_s"][0]
    assert {bar["name"]: bar["ok"] for bar in document["bars"]}["first answer right"] is False
