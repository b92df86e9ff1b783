from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from foveola.artifact import Finding, write_checkpoint
from foveola.cli import main
from foveola.compress.report import write_report
from foveola.compress.svg import Point, bars, scatter
from foveola.exchange import Invalid

LAYER = {"path": "model.<a>.down", "format": "int4/32", "chosen": "gptq", "predicted": 0.1, "measured": 0.12}
AWQ = Finding(
    step="compress.awq",
    changed="1 matrix rounded",
    before={"weight_bytes": 4000, "relative_output_error": 0.2},
    after={"weight_bytes": 1000, "relative_output_error": 0.12},
    options={"layers": [{**LAYER, "nearest": 0.2}]},
)


def sealed(folder: Path, source: Path, *lineage: Finding) -> Path:
    def fill(staging: Path) -> None:
        for name in ("config.json", "model.safetensors"):
            (staging / name).write_bytes((source / name).read_bytes())

    return write_checkpoint(folder, name="small", files=fill, lineage=lineage).path


def test_the_page_shows_the_lineage_and_the_layers(checkpoint: Path, tmp_path: Path) -> None:
    points = [{"name": "fp32", "bytes": 4e6, "accuracy": 0.9, "latency_ms": 20.0}]
    (tmp_path / "found.json").write_text(json.dumps({"figures": {"points": points}}))
    written = write_report(sealed(tmp_path / "small", checkpoint, AWQ), tmp_path / "report", [tmp_path / "found.json"])
    page = written.page.read_text()
    assert "model.&lt;a&gt;.down: gptq" in page
    assert "<td>relative_output_error</td><td>0.2</td><td>0.12</td>" in page
    assert page.count("<svg") == 5
    assert json.loads(written.data.read_text())["points"] == points
    assert not re.search(r"https?://", page)  # the page needs nothing from elsewhere


def test_the_verb_reports(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sealed(tmp_path / "small", checkpoint, AWQ)
    assert main(["compress", "report", str(made), "--out", str(tmp_path / "report"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lineage"][0]["step"] == "compress.awq"
    assert (tmp_path / "report" / "report.html").is_file()


def test_what_cannot_be_reported_is_said(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        write_report(checkpoint, tmp_path / "report")
    assert caught.value.message.startswith("random has no lineage, so there is nothing to report; name a checkpoint ")
    (tmp_path / "found.json").write_text("{}")
    with pytest.raises(Invalid, match="found.json holds no points of size, accuracy and latency"):
        write_report(sealed(tmp_path / "small", checkpoint, AWQ), tmp_path / "report", [tmp_path / "found.json"])


def test_plots_leave_out_what_has_no_place() -> None:
    drawn = scatter([Point(1, 10, "a"), Point(0, 1, "b"), Point(float("nan"), 1, "c")], "x", "y", log=True)
    assert drawn.count("<circle") == 1
    assert scatter([], "x", "y") == bars([], "x") == "<p>Nothing to draw.</p>"
    assert bars([("one", 2.0), ("two", 1.0)], "ms").count("<rect") == 2


def test_the_verb_compresses(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.toml").write_text('[[step]]\nuse = "round"\nstorage = "int8/32"\n')
    given = ["compress", str(checkpoint), "--recipe", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "out")]
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lineage"][0]["step"] == "compress.round"
    assert main(given) == 2
    assert "out exists; ask to replace it (--replace)" in capsys.readouterr().err
    assert main(["compress", str(checkpoint)]) == 2
    assert "compressing needs --recipe FILE and --out DIR." in capsys.readouterr().err
    assert main(["compress", "a", "b"]) == 2
    assert "one checkpoint is compressed at a time; 2 were named." in capsys.readouterr().err
