"""Labels for answers, and the rate that they make."""

from __future__ import annotations

import math

import pytest

from foveola.observe.accuracy import KEPT_ANSWERS, WINDOW, Accuracy, UnknownAnswer
from foveola.observe.records import Record


def answered(accuracy, id_, text="scratch"):
    accuracy(Record(id_, "answered", 0.1, text=text))


def test_nothing_is_known_before_the_first_label():
    accuracy = Accuracy()
    answered(accuracy, "a")
    assert math.isnan(accuracy.rate)
    assert accuracy.samples == 0


@pytest.mark.parametrize(("text", "expected", "right"), [
    ("scratch", "Scratch ", True), ("\uff30\uff21\uff33\uff33", "pass", True), ("scratch", "pit", False),
    ("划痕", "划痕", True),
])  # fmt: skip
def test_answers_are_compared_without_regard_to_writing(text, expected, right):
    accuracy = Accuracy()
    answered(accuracy, "a", text)
    assert accuracy.label("a", expected=expected) is right
    assert accuracy.rate == float(right)


def test_a_person_may_say_so():
    accuracy = Accuracy()
    for i in range(4):
        answered(accuracy, str(i))
        accuracy.label(str(i), right=i != 2)
    assert accuracy.rate == 0.75
    assert accuracy.samples == 4


def test_the_last_label_of_an_answer_counts():
    accuracy = Accuracy()
    answered(accuracy, "a")
    accuracy.label("a", right=False)
    accuracy.label("a", right=True)
    assert (accuracy.rate, accuracy.samples) == (1.0, 1)


def test_old_labels_leave():
    accuracy = Accuracy()
    for i in range(WINDOW + 10):
        answered(accuracy, str(i))
        accuracy.label(str(i), right=i >= 10)
    assert (accuracy.rate, accuracy.samples) == (1.0, WINDOW)


def test_unknown_and_forgotten_answers_are_told():
    accuracy = Accuracy()
    for i in range(KEPT_ANSWERS + 1):
        answered(accuracy, str(i))
    accuracy(Record("refused", "refused", 0.1, code="busy"))
    for id_ in ("0", "nobody", "refused"):
        with pytest.raises(UnknownAnswer, match="There is no answer with this id among the last 4096; send the `id`"):
            accuracy.label(id_, right=True)
