from __future__ import annotations

import numpy as np
import pytest

from foveola.bridge.head import Head, fit_head
from tests.bridge.making import letters

TEXTS = ("扣留批次", "扣留这一批", "报废这件", "把它报废", "停线", "马上停线")
NAMES = ("LOT_HOLD", "SCRAP", "LINE_STOP", "REWORK")
TRUTH = np.array([0, 0, 1, 1, 2, 2])


def test_it_reads_what_wordings_of_an_intent_have_in_common() -> None:
    head = fit_head(letters(TEXTS), TRUTH, NAMES)
    scores = head(letters(["扣留那个批次", "报废", "停线吧"]), NAMES)
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    assert head.intents == NAMES[:3]
    assert (scores[:, 3] == 0).all()  # no wording of it was there


def test_intents_are_found_by_name_and_not_by_place() -> None:
    head = fit_head(letters(TEXTS), TRUTH, NAMES)
    turned = head(letters(TEXTS), ("NEW", *reversed(NAMES)))
    assert turned[:, 0].tolist() == [0] * len(TEXTS)
    assert np.array_equal(turned[:, 1:], head(letters(TEXTS), NAMES)[:, ::-1])


def test_an_intent_with_few_wordings_weighs_as_much_as_one_with_many() -> None:
    many = [*(f"扣留批次{number}号" for number in range(40)), "报废这件", "把它报废"]
    head = fit_head(letters(many), np.array([0] * 40 + [1] * 2), NAMES)
    assert head(letters(["报废那件"]), NAMES)[0].argmax() == 1


def test_without_learning_or_for_another_encoder_it_says_nothing() -> None:
    assert Head()(letters(["停线"]), NAMES).tolist() == [[0] * 4]
    head = fit_head(letters(TEXTS), TRUTH, NAMES)
    assert head(letters(["停线"])[:, :100], NAMES).tolist() == [[0] * 4]


def test_the_same_wordings_give_the_same_head() -> None:
    assert fit_head(letters(TEXTS), TRUTH, NAMES) == fit_head(letters(TEXTS), TRUTH, NAMES)
    assert fit_head(letters(TEXTS), TRUTH, NAMES).mean == pytest.approx(letters(TEXTS).mean(axis=0), abs=1e-5)
