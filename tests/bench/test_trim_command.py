"""A trimmed bundle of the embedded model answers as the whole one does, sure or not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnx_ir", reason="the workshop is not installed")

from foveola.artifact import Bundle
from foveola.bench.local import request_of
from foveola.bench.work import generated_items
from foveola.cli import main
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.engine.runner import OrtRunner
from foveola.serve.embedded import embedded_bundle


def test_answers_are_those_of_the_whole_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("Which defect is on this surface?\n" * 4, encoding="utf-8")
    out = tmp_path / "trimmed"
    arguments = ["trim", "--bundle", str(embedded_bundle()), "--out", str(out), "--questions", str(questions)]
    assert main([*arguments, "--max-tokens", "8", "--threads", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kept"] < told["vocabulary"] / 2
    assert told["asked_full_head"] == 0  # the held-out questions are the others again
    trimmed = Bundle.open(out)
    assert trimmed.lineage[-1].step == "lower.trim"

    options = EngineOptions(threads=1, slots=2)
    whole, narrow = Engine.open(embedded_bundle(), options), Engine.open(trimmed, options)
    runner = narrow._scheduler._lanes[0].runner
    assert isinstance(runner, OrtRunner)
    assert runner._trim is not None
    runner._trim.least = 2.0  # never sure: the full head is asked for everything
    item = generated_items(1, seed=4)[0]
    greedy = request_of(item, 12)
    sampled = replace(greedy, sampling=replace(greedy.sampling, temperature=1.2, seed=7))
    assert answer_once(narrow, greedy)[0] == answer_once(whole, greedy)[0]
    runner._trim.least = 0.0  # always sure, but who samples gets the whole distribution
    assert answer_once(narrow, sampled)[0] == answer_once(whole, sampled)[0]
    assert runner._trim.completed > 0
    whole.close(5)
    narrow.close(5)
