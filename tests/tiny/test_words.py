"""Wordings: every task can be asked in both languages, and answers can be read back."""

from __future__ import annotations

import random

import pytest

from foveola.tiny import words


@pytest.mark.parametrize("task", words.TASKS)
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_every_task_fills_its_slots(task, lang, split):
    rng = random.Random(0)
    for _ in range(60):
        text = words.question(task, lang, rng, split=split, x="crack", n="2")
        assert text
        assert "{" not in text
        assert "}" not in text
        assert "|" not in text


@pytest.mark.parametrize("task", words.TASKS)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_held_out_wordings_are_not_trained_on(task, lang):
    assert not set(words.templates(task, lang, "train")) & set(words.templates(task, lang, "held_out"))


def test_a_task_has_many_wordings():
    rng = random.Random(1)
    assert len({words.question("defect", "en", rng) for _ in range(2000)}) > 800


@pytest.mark.parametrize(
    ("box", "text"),
    [
        ((0.123, 0.0, 0.5, 0.996), "(120,0),(500,990)"),
        ((-0.1, 0.2, 1.4, 0.3), "(0,200),(990,300)"),
    ],
)
def test_a_box_is_said_in_thousandths(box, text):
    assert words.say_box(box) == text
    assert words.say_box(words.parse_box(text)) == text


def test_a_text_without_a_box_has_none():
    assert words.parse_box("no defect") is None


def test_defects_are_named_once_and_none_is_said():
    assert words.say_defects(["pit", "scratch", "pit"], "en") == "pit, scratch"
    assert words.say_defects(["pit"], "zh") == "凹坑"
    assert words.say_defects([], "en") == "no defect"


def test_cells_come_in_reading_order():
    assert words.say_cells([8, 0, 8], "en") == "top left, bottom right"
    assert words.say_cells([4], "zh") == "中央"


def test_a_description_names_material_defect_and_place():
    assert words.describe("magnetic tile", ["crack"], [0], "en") == "A magnetic tile with crack at the top left."
    assert words.describe("magnetic tile", [], [], "en") == "A magnetic tile with no defect."


def test_a_thinned_question_lacks_a_turn_of_phrase_and_never_what_it_is_about():
    rng = random.Random(0)
    asked = "Please determine what kind of flaw we are looking at."
    thinned = {words.thinned(asked, rng) for _ in range(60)}
    assert len(thinned) > 8
    assert asked not in thinned
    for one in thinned:
        assert 8 <= len(one.split()) <= 9
        assert "flaw" in one
    assert all("3?" in words.thinned("Which character is at position 3?", rng) for _ in range(40))
    assert words.thinned("Where is it?", rng) == "Where is it?"
    assert words.thinned("请问这个零件上有什么缺陷?", rng) == "请问这个零件上有什么缺陷?"
