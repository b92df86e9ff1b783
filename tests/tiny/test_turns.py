"""Answers follow from the scene, and packed rows keep turns apart."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the workshop is not installed")

from foveola.tiny import turns, words
from foveola.tiny.scenes import Defect, Scene
from foveola.tiny.tokens import train_tokenizer

EMPTY = np.zeros((0, 0, 3), np.uint8)
PIT = Scene(EMPTY, "machined part", (Defect("pit", (0.1, 0.1, 0.2, 0.2)),), True, ("pit",))
CLEAN = Scene(EMPTY, "magnetic tile")
LABEL = Scene(EMPTY, "printed label", code="A7K39", expiry="2027-01-02")


@pytest.mark.parametrize(
    ("task", "scene", "lang", "answer"),
    [
        ("defect", PIT, "en", "pit"),
        ("defect", PIT, "zh", "凹坑"),
        ("defect", CLEAN, "en", "no defect"),
        ("where", PIT, "en", "top left"),
        ("where", CLEAN, "zh", "无缺陷"),
        ("box", PIT, "en", "(100,100),(200,200)"),
        ("box", CLEAN, "en", "no defect"),
        ("count", PIT, "zh", "1"),
        ("count", CLEAN, "en", "0"),
        ("verdict", PIT, "en", "fail"),
        ("verdict", CLEAN, "zh", "合格"),
        ("clean", PIT, "en", "yes"),
        ("clean", CLEAN, "zh", "否"),
        ("material", CLEAN, "en", "magnetic tile"),
        ("code", LABEL, "en", "A7K39"),
        ("expiry", LABEL, "zh", "2027-01-02"),
        ("length", LABEL, "en", "5"),
        ("describe", PIT, "en", "A machined part with pit at the top left."),
    ],
)
def test_the_answer_follows_from_the_scene(task, scene, lang, answer):
    assert turns.one_turn(task, scene, lang, random.Random(0))[1] == answer


def test_a_character_is_the_one_asked_for():
    rng = random.Random(0)
    for _ in range(20):
        question, answer = turns.one_turn("char", LABEL, "en", rng)
        position = next(int(c) for c in question if c.isdigit())
        assert answer == LABEL.code[position - 1]


def test_a_yes_no_question_is_answered_truly():
    rng = random.Random(0)
    seen = set()
    for _ in range(60):
        question, answer = turns.one_turn("has", PIT, "en", rng)
        says_pit = " pit" in f" {question.lower()}".replace("pitt", "").replace("pits", "")
        assert (answer == "yes") == says_pit, question
        seen.add(answer)
    assert seen == {"yes", "no"}


def test_the_code_is_asked_by_name_where_a_date_stands_beside_it():
    rng = random.Random(0)
    names = ("lot", "batch", "serial", "code", "批", "码", "序列")
    for lang in ("en", "zh"):
        for _ in range(60):
            question, _ = turns.one_turn("code", LABEL, lang, rng)
            assert any(n in question.lower() for n in names)


def test_box_and_cell_are_always_trained_where_there_is_one_defect():
    tasks = [q for q, _ in turns.turns_for(PIT, random.Random(0), 4)]
    assert len(tasks) == 4
    answers = {a for _, a in turns.turns_for(PIT, random.Random(3), 3)}
    assert answers & {"(100,100),(200,200)"}
    assert answers & {words.CELLS[0], words.CELLS_ZH[0]}


def test_a_row_predicts_every_answer_token_from_the_slot_before(tmp_path):
    packer = turns.Packer(train_tokenizer(tmp_path))
    row = packer.pack((4, 4), [("What?", "pit"), ("Read the lot code.", "A7K")])
    said = [
        *packer.encode("pit"),
        packer.encode("<|im_end|>")[0],
        *packer.encode("A7K"),
        packer.encode("<|im_end|>")[0],
    ]
    assert row.targets.tolist() == said
    for slot, target in zip(row.slots[:-1], row.targets[:-1], strict=True):
        if target != packer.encode("<|im_end|>")[0]:
            assert row.ids[slot + 1] == target
    assert set(row.segments.tolist()) == {0, 1, 2}
    first, second = (row.positions[0][row.segments == n][0] for n in (1, 2))
    assert first == second


def test_every_character_of_a_code_is_seen_under_it_and_a_place_under_its_defect(tmp_path):
    packer = turns.Packer(train_tokenizer(tmp_path))
    label = replace(LABEL, code="A7", characters=(("A", 0, (0.0, 0.0, 0.5, 1.0)), ("7", 1, (0.5, 0.0, 1.0, 1.0))))
    asked = next(t for t in turns.asked_about(label, random.Random(1), 3) if t.answer == "A7")
    row = packer.pack((2, 8), [asked])
    whole, none = [True, True], [False, False]
    assert row.seen.tolist() == [[whole, whole, none, none], [none, none, whole, whole], [none] * 4]

    where = next(t for t in turns.asked_about(PIT, random.Random(0), 4) if t.answer in (words.CELLS[0], "左上"))
    row = packer.pack((4, 4), [where])
    assert row.seen[:-1].tolist() == [[[True, False], none, none, none]] * (len(row.targets) - 1)
    assert not row.seen[-1].any(), "where the end of an answer is seen, nobody knows"
    assert row.told.tolist() == [pytest.approx([0.1, 0.1, 0.2, 0.2])] * len(row.targets)


def test_answers_that_are_no_place_tell_no_box(tmp_path):
    packer = turns.Packer(train_tokenizer(tmp_path))
    two = replace(PIT, defects=(*PIT.defects, Defect("pit", (0.6, 0.6, 0.7, 0.7))), names=("pit", "pit"))
    for scene in (LABEL, CLEAN, two):
        row = packer.pack((4, 4), turns.asked_about(scene, random.Random(0), 8))
        assert len(row.told) == len(row.targets)
        assert np.isnan(row.told).all()


def test_the_digits_of_a_box_look_along_their_edge_and_tell_it(tmp_path):
    packer = turns.Packer(train_tokenizer(tmp_path))
    asked = next(t for t in turns.asked_about(PIT, random.Random(0), 4) if t.answer.startswith("(1"))
    row = packer.pack((8, 8), [asked])
    assert len(row.targets) == len("(100,100),(200,200)") + 1, "every character is a token"
    left, top, right, bottom = (row.seen[i] for i in (1, 5, 11, 15))
    for number in range(1, 4):
        assert (row.seen[number] == left).all()
        assert (row.seen[4 + number] == top).all()
    # the pit lies at 0.1 to 0.2: its left edge in the first half of the first column of tokens, its right in the second
    assert left.tolist() == [[True, False]] + [[False, False]] * 15
    assert top.tolist() == [[True, True]] + [[False, False]] * 15
    assert right.tolist() == [[False, True]] + [[False, False]] * 15
    assert bottom.tolist() == top.tolist()
    assert not row.seen[[0, 4, 8, 9, 10, 14, 18, 19]].any(), "brackets and commas are seen nowhere"
    told = [np.nan] * 4
    for slots, edge in (((1, 2, 3), 0), ((5, 6, 7), 1), ((11, 12, 13), 2), ((15, 16, 17), 3)):
        one = [*told[:edge], PIT.defects[0].box[edge], *told[edge + 1 :]]
        for slot in slots:
            assert row.told[slot].tolist() == pytest.approx(one, nan_ok=True)
    assert np.isnan(row.told[[0, 4, 19]]).all()


def test_half_a_token_shows_a_box_from_a_fifth_on():
    def shown(x1: float, x2: float) -> list[list[bool]]:
        return turns.halves_in(((x1, 0.0, x2, 0.5),), 2, 2)[:2].tolist()

    assert shown(0.0, 0.29) == [[True, False], [False, False]]
    assert shown(0.0, 0.31) == [[True, True], [False, False]]
    assert shown(0.74, 0.76) == [[False, False], [True, True]], "half of it lies in each"
    assert not turns.halves_in(((0.0, 0.0, 1.0, 0.5),), 2, 2)[2:].any()
