from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

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


def sealed(folder: Path, source: Path, *lineage: Finding, record: dict[str, Any] | None = None) -> Path:
    def fill(staging: Path) -> None:
        for file in source.iterdir():
            if file.name != "foveola.json":
                (staging / file.name).write_bytes(file.read_bytes())
        if record is not None:
            (staging / "precision.json").write_text(json.dumps(record))

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


def test_bits_are_shown_by_layer_by_block_and_against_what_else_there_was(checkpoint: Path, tmp_path: Path) -> None:
    def layer(chosen: str, *costs: float) -> dict[str, Any]:
        considered = dict(zip(("int2/64@4", "int4/64@4", "int8/64@4"), costs, strict=True))
        told = {"storage": chosen, "predicted_kl": considered[chosen], "relative_output_error": 0.1, "weights": 4096}
        return {**told, "considered": considered}

    layers = {"a.<b>": layer("int2/64@4", 0.02, 0.001, 1e-5), "c": layer("int4/64@4", 0.3, 0.01, 1e-4)}
    block = {"block": "model.layers.0", "bound": 2.0, "expected": 0.2, "measured": 0.1}
    record = {"bits": 3.0, "predicted_kl": 0.03, "layers": layers, "blocks": [block, {**block, "bound": 9.0}]}
    finding = Finding("compress.precision", "2 matrices", {}, {"bits": 3.0}, measured=False)
    page = write_report(sealed(tmp_path / "small", checkpoint, finding, record=record), tmp_path / "report").page
    text = page.read_text()
    assert "<tr><td>int2/64@4</td><td>1</td><td>0.02</td></tr>" in text
    assert "a.&lt;b&gt;" in text
    assert "int4/64@4 for all: 4 bits, 0.011 nats" in text
    assert text.count("<polyline") == 1
    assert text.count(">model.layers.0: ") == 6  # three errors of two blocks


def test_the_divergence_of_every_step_of_tune_is_drawn(checkpoint: Path, tmp_path: Path) -> None:
    tune = Finding(
        "compress.tune", "2 matrices' scales learnt", {"kl": 0.2}, {"kl": 0.1}, options={"losses": [0.3, 0.1]}
    )
    page = write_report(sealed(tmp_path / "small", checkpoint, tune), tmp_path / "report").page.read_text()
    assert page.count("<circle") == 2
    assert "step 2: 0.1 nats" in page


def test_token_maps_show_as_many_tokens_as_they_say(checkpoint: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (56, 112, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "part.png")
    made = sealed(tmp_path / "small", checkpoint, replace(AWQ, step="compress.tokens", options={"after": 1}))
    given = ["compress", "report", str(made), "--out", str(tmp_path / "report"), "--pictures"]
    assert main([*given, str(tmp_path / "part.png")]) == 0
    told = json.loads((tmp_path / "report" / "report.json").read_text())["token_maps"]
    assert told == [{"picture": "part.png", "tokens": 8, "kept": [4, 2]}]
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Chosen behind block 1 of the tower." in page
    assert page.count("data:image/png;base64,") == 1
    with pytest.raises(Invalid, match="there is no picture other.png; name files that exist."):
        write_report(made, tmp_path / "report", pictures=[tmp_path / "other.png"])


def test_the_line_joins_what_nothing_beats(checkpoint: Path, tmp_path: Path) -> None:
    values = ((1e6, 0.5, 9.0), (2e6, 0.4, 8.0), (3e6, 0.9, 7.0))
    points = [{"name": f"p{n}", "bytes": v[0], "accuracy": v[1], "latency_ms": v[2]} for n, v in enumerate(values)]
    (tmp_path / "found.json").write_text(json.dumps({"figures": {"points": points}}))
    page = write_report(sealed(tmp_path / "s", checkpoint, AWQ), tmp_path / "r", [tmp_path / "found.json"]).page
    lines = re.findall(r'<polyline points="([^"]*)"', page.read_text())
    assert [len(line.split()) for line in lines] == [2, 3]


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
