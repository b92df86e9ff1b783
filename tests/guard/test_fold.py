from __future__ import annotations

import pytest

from foveola.guard.fold import BARRIER, fold, joins_words, separates

SIMPLIFIED = {"彈": "弹", "藥": "药"}


@pytest.mark.parametrize(
    ("character", "form"),
    [
        ("A", "a"), ("Ａ", "a"), ("ⓐ", "a"), ("𝔄", "a"), ("а", "a"), ("Α", "a"), ("á", "a"), ("ß", "ss"), ("ﬁ", "fi"),
        ("彈", "弹"), ("㎏", "kg"), ("½", "l2"), ("0", "o"), ("５", "5"), ("İ", "i"), ("弹", "弹"), ("ｱ", "ア"),
        (" ", ""), ("\n", ""), ("-", ""), ("·", ""), ("\u200b", ""), ("\u00ad", ""), ("\u0301", ""), ("\ufe0f", ""),
        ("，", ""), ("*", ""), ("\u3164", ""), ("😀", ""), (BARRIER, BARRIER),
    ],
)  # fmt: skip
def test_a_character_folds(character: str, form: str) -> None:
    assert fold(character, SIMPLIFIED) == form


def test_folding_twice_is_folding_once() -> None:
    for code in range(0x3000):
        once = fold(chr(code), SIMPLIFIED)
        assert "".join(fold(part, SIMPLIFIED) for part in once) == once, hex(code)


def test_marks_of_one_script_are_spelling_and_accents_are_not() -> None:
    assert not separates("\u3099")  # kana's voicing
    assert not separates("\u0e34")  # a Thai vowel
    assert separates("\u0308")


def test_chinese_ends_an_english_word_and_a_mask_does_not() -> None:
    assert joins_words("a") and joins_words("é") and joins_words("7") and joins_words(BARRIER)
    assert not any(joins_words(character) for character in "是カ한 -.")
