from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola.artifact import Bundle
from foveola.cli import main
from foveola.engine.dual_confidence import read_confidence
from foveola.serve.embedded import embedded_bundle
from tests.serve.process import ROOT

EXAMPLE = ROOT / "examples" / "surface.png"


def test_a_confidence_is_learnt_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(EXAMPLE.read_bytes())
    questions = tmp_path / "questions.jsonl"
    right = {"image": "a.png", "text": "What defect is on this surface?", "answer": "crazing"}
    wrong = {**right, "answer": "something else entirely"}
    questions.write_text("\n".join(json.dumps(one) for one in [right, wrong] * 10) + "\n\n")
    out = tmp_path / "confidence.json"
    assert main(["confidence", str(questions), "--out", str(out), "--max-tokens", "8", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["questions"] == 20
    assert figures["accuracy"] <= 0.5
    assert figures["threshold"] > 1  # nothing is that sure
    confidence = read_confidence(out, Bundle.open(embedded_bundle()).model_hash)
    assert confidence.samples == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "Line 1 of questions.jsonl is no question"),
        ('{"text": "a", "answer": "b"}\nnonsense', "Line 2 of questions.jsonl is no question"),
        ('{"image": "none.png", "text": "a", "answer": "b"}', "and the picture beside the file"),
    ],
)
def test_what_is_no_question(tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text(text)
    assert main(["confidence", str(questions), "--out", str(tmp_path / "out.json")]) == 2
    assert message in capsys.readouterr().err
    assert main(["confidence", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "out.json")]) == 2
    assert not (tmp_path / "out.json").exists()
