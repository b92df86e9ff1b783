from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="the bench door is not installed")

from foveola.bench.evidence import KEYS
from tests.bench.scripts import load


def summary(tail: float) -> dict[str, Any]:
    names = ("head_accuracy", "tail_accuracy", "alignment_error", "forgotten_points")
    return {name: {"mean": tail, "seeds": [tail - 0.1, tail + 0.1]} for name in names}


def test_curves_are_drawn_from_the_results(tmp_path: Path) -> None:
    runs = {
        "balanced": [{"curve": [[step, 1 / step] + ([0.5] if step % 5 == 0 else []) for step in range(1, 11)]}],
        "fine_tuning": [{"curve": [[step, 2 / step] for step in range(1, 11)]}],
    }
    figures = {"summary": {"before": summary(0.5), "balanced": summary(0.8), "fine_tuning": summary(0.2)}, "runs": runs}
    document = dict.fromkeys(KEYS, "") | {"figures": figures, "bars": []}
    (tmp_path / "result.json").write_text(json.dumps(document))
    given = ["--result", str(tmp_path / "result.json"), "--out", str(tmp_path / "images")]
    assert load("repair_plot").main(given) == 0
    for name in ("repair-methods", "repair-curve"):
        assert (tmp_path / f"images/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_results_it_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("repair_plot").main(["--result", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read as evidence; run the script that writes it again." in capsys.readouterr().err
