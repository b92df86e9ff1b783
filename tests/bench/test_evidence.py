from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from foveola.bench import evidence
from foveola.bench.evidence import KEYS, Bar, Script, Tell, read, write
from foveola.exchange import Invalid, Refusal
from tests.bench.making import MACHINE


def script(*bars: Bar, figures: dict[str, Any] | None = None) -> Script:
    def measure(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
        tell("measuring")
        return figures or {"median_ms": 1.5}, bars

    return Script("x1", "example", "What it does.", measure)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nobody else works."""
    monkeypatch.setattr(evidence, "describe_machine", lambda: MACHINE)


GOOD, POOR = Bar("times faster", 6.8, 6), Bar("added, ms", 3.5, 3, at_most=True)


def test_a_result_has_the_format_of_the_design(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script(GOOD).main(tmp_path, []) == 0
    document = json.loads((tmp_path / "results" / "x1_example.json").read_text())
    assert tuple(document) == KEYS
    assert document["id"] == "x1"
    assert document["figures"] == {"median_ms": 1.5}
    assert document["bars"] == [{"name": "times faster", "value": 6.8, "bar": ">= 6", "ok": True}]
    assert document["machine"]["cores"] >= 1
    assert document["command"].endswith("x1_example.py")
    assert str(tmp_path) not in json.dumps(document)
    assert read(tmp_path / "results" / "x1_example.json") == document
    assert "times faster" in capsys.readouterr().out


def test_a_missed_bar_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script(GOOD, POOR).main(tmp_path, []) == 1
    shown = capsys.readouterr().out
    assert "missed" in shown
    bars = json.loads((tmp_path / "results" / "x1_example.json").read_text())["bars"]
    assert [bar["ok"] for bar in bars] == [True, False]
    assert bars[1]["bar"] == "<= 3"


def test_a_quick_run_is_no_evidence(tmp_path: Path) -> None:
    assert script(POOR).main(tmp_path, ["--quick"]) == 0
    assert not (tmp_path / "results").exists()
    out = tmp_path / "elsewhere.json"
    assert script(POOR).main(tmp_path, ["--quick", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["figures"]["quick"] is True


def test_json_goes_to_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(GOOD).main(tmp_path, ["--json", "--quick"])
    shown = capsys.readouterr()
    assert json.loads(shown.out)["id"] == "x1"
    assert "measuring" in shown.err


def test_a_busy_machine_is_told_with_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evidence, "describe_machine", lambda: {**MACHINE, "busy": 0.64})
    script(GOOD).main(tmp_path, [])
    (note,) = json.loads((tmp_path / "results" / "x1_example.json").read_text())["figures"]["notes"]
    assert note.startswith("The machine was busy when this began (others took 64% of its cores)")
    assert "others took 64%" in " ".join(capsys.readouterr().err.split())


def test_a_refusal_is_its_message_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
        raise Invalid("data lacks its manifest.")

    assert Script("x1", "example", "", measure).main(tmp_path, []) == 2
    assert capsys.readouterr().err == "x1_example.py: data lacks its manifest.\n"
    assert not (tmp_path / "results").exists()


def test_nothing_measured_reaches_no_bar() -> None:
    for at_most in (False, True):
        bar = Bar("share", math.nan, 0.5, at_most)
        assert not bar.ok
        assert bar.to_json()["value"] is None
    assert Bar("exactly", 3.0, 3.0, at_most=True).ok
    assert Bar("exactly", 3.0, 3.0).ok


def test_a_file_that_is_no_evidence_is_named(tmp_path: Path) -> None:
    path = tmp_path / "e1_speed.json"
    path.write_text("{")
    with pytest.raises(Refusal, match="e1_speed.json cannot be read as evidence; run the script"):
        read(path)
    path.write_text('{"id": "e1", "date": ""}')
    with pytest.raises(Refusal, match="e1_speed.json lacks machine, versions, command, figures, bars"):
        read(path)


def test_writing_leaves_nothing_half_done(tmp_path: Path) -> None:
    write({"id": "缺陷"}, tmp_path / "deep" / "one.json")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["one.json"]
    assert "缺陷" in (tmp_path / "deep" / "one.json").read_text(encoding="utf-8")
