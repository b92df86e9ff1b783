from __future__ import annotations

import random
from pathlib import Path

import pytest

from foveola.exchange import Damaged, Invalid
from foveola.guard.words import MAGIC, compile_words, load_words, parse_words, read_list, write_words
from tests.guard.lists import compiled, words_of


def test_a_list_is_read() -> None:
    text = "\ufeff# ours\n\n炸弹\n =ass \nbomb\n=bomb\n"
    assert read_list(text.splitlines()) == {"炸弹": False, "ass": True, "bomb": False}


def test_a_line_without_a_word_is_named() -> None:
    with pytest.raises(Invalid, match="Line 2 of mine.txt marks a whole word and names none"):
        read_list(["a", "= "], "mine.txt")


@pytest.mark.parametrize(
    ("word", "told"), [("C++", "only 'c' is left"), ("...", "nothing is left"), ("a" * 257, "at most 256")]
)
def test_a_word_without_substance_is_refused(word: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        compiled([word])


def test_the_same_words_make_the_same_file() -> None:
    assert compiled(["abc", "炸弹"]) == compiled(["炸弹", "abc"])
    assert words_of(["abc"]).version != words_of(["abd"]).version


def test_a_file_is_loaded_as_it_was_compiled(tmp_path: Path) -> None:
    file = tmp_path / "a.words"
    write_words(compiled(["abc", "炸弹"]), file)
    words = load_words(file)
    assert words.count == 2
    assert words.normal("炸-彈 ＡBС") == "炸弹abc"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.words"]


def test_nothing_that_is_broken_is_loaded_and_nothing_breaks() -> None:
    good = compiled(["abc", "abd", "炸弹"])
    rng = random.Random(0)
    for _ in range(400):
        broken = bytearray(good[: rng.randrange(len(good))] if rng.random() < 0.3 else good)
        for _ in range(rng.randrange(1, 4)):
            if broken:
                broken[rng.randrange(min(len(broken), 200) if rng.random() < 0.5 else len(broken))] = rng.randrange(256)
        if bytes(broken) != good:
            try:
                parse_words(bytes(broken), "b.words")
            except Damaged as error:
                assert "b.words" in error.message
            else:
                assert parse_words(bytes(broken), "b").version == parse_words(good, "b").version


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is no compiled list"),
        (b"\x80\x04pickle", "is no compiled list"),
        (MAGIC, "truncated"),
        (MAGIC + b"\xff\xff\xff\xff", "truncated"),
        (MAGIC + b"\x02\0\0\0{}", "header without"),
    ],
)
def test_what_is_no_list_is_told(data: bytes, told: str) -> None:
    with pytest.raises(Damaged, match=told):
        parse_words(data, "x.words")


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="^no.words cannot be read: No such file"):
        load_words(tmp_path / "no.words")


def test_without_opencc_the_door_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opencc", None)
    with pytest.raises(Invalid, match=r"pip install 'foveola\[guard\]'"):
        compile_words({"abc": False})
