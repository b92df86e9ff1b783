"""``foveola ask`` with the embedded model: what is set about words holds in the terminal too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola.cli import main
from foveola.guard.fold import BARRIER
from foveola.guard.words import write_words
from tests.guard.lists import compiled
from tests.hostile.asking import picture as gradient

QUESTION = "What is shown here?"


def asked(picture: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["ask", str(picture), QUESTION, "--max-tokens", "8", *more]) == 0
    return capsys.readouterr().out


def test_the_word_filter_holds_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(gradient())
    free = asked(picture, capsys).strip()
    said = json.loads(asked(picture, capsys, "--json"))
    assert said["text"] == free
    word = max(free.split(), key=len)
    write_words(compiled([word]), tmp_path / "a.words")
    monkeypatch.setenv("FOVEOLA_GUARD_WORDS", str(tmp_path / "a.words"))
    masked = asked(picture, capsys)
    assert BARRIER in masked and word not in masked
    reply = json.loads(asked(picture, capsys, "--json"))
    assert reply["text"] == masked.strip()
    assert reply["finish_reason"] == said["finish_reason"]
    monkeypatch.setenv("FOVEOLA_GUARD_WORDS_ACTION", "stop")
    reply = json.loads(asked(picture, capsys, "--json"))
    assert free.startswith(reply["text"]) and word not in reply["text"]
    assert reply["finish_reason"] == "content_filter"
    monkeypatch.setenv("FOVEOLA_GUARD_WORDS_ACTION", "off")
    assert asked(picture, capsys).strip() == free


def test_a_list_that_is_none_stops_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(gradient())
    (tmp_path / "a.words").write_text("bomb\n")
    monkeypatch.setenv("FOVEOLA_GUARD_WORDS", str(tmp_path / "a.words"))
    assert main(["ask", str(tmp_path / "a.png"), QUESTION]) != 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "a.words is no compiled list of words" in told.err
