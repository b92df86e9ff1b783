from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola.cli import main


def test_a_list_is_compiled_and_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("炸弹\n=ass\n", encoding="utf-8")
    out = str(tmp_path / "a.words")
    assert main(["guard", "words", str(tmp_path / "a.txt"), "--out", out, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["words"] == 2
    assert main(["guard", "filter", out, "炸-彈 class", "--action", "drop"]) == 0
    assert capsys.readouterr().out == " class\n"
    assert main(["guard", "filter", out, "an ass", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply == {"text": "an ███", "hits": 1, "stopped": False, "version": figures["version"]}


def test_a_list_in_another_encoding_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_bytes("炸弹".encode("gb18030"))
    assert main(["guard", "words", str(tmp_path / "a.txt"), "--out", str(tmp_path / "a.words")]) == 2
    assert "a.txt is not UTF-8; save the list in UTF-8." in capsys.readouterr().err
