from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola.artifact import describe
from foveola.cli import main
from foveola.exchange import Damaged
from tests.artifact.making import FINDING, checkpoint_files, make_bundle


def test_a_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", chat_template="long text")
    description = describe(tmp_path / "b")
    assert description["kind"] == "bundle"
    assert description["name"] == "small"
    assert description["model_hash"] == bundle.model_hash
    assert [file["name"] for file in description["files"]] == sorted(bundle.files)
    assert description["bytes"] == sum(file["bytes"] for file in description["files"])
    assert description["lineage"] == [FINDING.to_json()]
    assert "chat_template" not in description["model"]
    assert json.loads(json.dumps(description)) == description


def test_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    checkpoint_files(tmp_path / "c")
    description = describe(tmp_path / "c")
    assert description["kind"] == "checkpoint"
    assert description["architectures"] == ["Qwen2VLForConditionalGeneration"]
    assert description["parameters"] == 10
    assert description["tensors"] == 2
    assert description["bytes_by_dtype"] == {"F32": 24, "BF16": 8}
    assert description["model_hash"] is None
    assert json.loads(json.dumps(description)) == description


def test_neither(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(Damaged, match="d is neither a bundle nor a checkpoint: both manifest.json and config.json"):
        describe(tmp_path / "d")
    with pytest.raises(Damaged, match=r"^e is no directory; name a bundle or a checkpoint\.$"):
        describe(tmp_path / "e")


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(tmp_path / "b")
    assert main(["inspect", str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == describe(tmp_path / "b")


def test_the_command_prints_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    bundle = make_bundle(tmp_path / "b")
    assert main(["inspect", str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    for expected in (bundle.model_hash, "graphs/decoder.onnx", "round_to_nearest", "4,096", "640", "measured", "0.01"):
        assert expected in shown
    (tmp_path / "c").mkdir()
    checkpoint_files(tmp_path / "c")
    assert main(["inspect", str(tmp_path / "c")]) == 0
    shown = capsys.readouterr().out
    assert "10 in 2 tensors" in shown
    assert "none: not sealed" in shown
    assert "Lineage: none recorded." in shown


def test_the_command_names_the_damaged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_bundle(tmp_path / "b")
    (tmp_path / "b" / "vision.onnx").write_bytes(b"")
    assert main(["inspect", str(tmp_path / "b")]) == 2
    assert "vision.onnx is truncated: 0 bytes, expected 600" in capsys.readouterr().err
