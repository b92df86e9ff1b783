from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foveola.bridge.corpus import UNSEEN, load_corpus
from foveola.bridge.familiar import Wordings
from foveola.bridge.intents import load_intents
from foveola.bridge.score import FAMILIAR_AT, REVIEW_AT
from tests.bridge.making import normaliser, raw


@pytest.fixture(scope="module")
def known() -> Wordings:
    return Wordings(["扣留批次L2417", "put lot L2417 on hold", "INSPECTION RESULT: PASS"], load_intents().ids)


def test_names_and_numbers_do_not_count(known: Wordings) -> None:
    assert known.nearest("扣留批次L9999") == pytest.approx(1.0)
    assert known.nearest("put lot L3301 on hold") == pytest.approx(1.0)
    assert known.nearest("L2417") == 1.0


def test_what_was_misread_or_misheard_stays_familiar(known: Wordings) -> None:
    assert known.nearest("lNSPECT1ON RESU1T: PA55") == pytest.approx(1.0)
    assert known.nearest("口留批次L2417") > 0.5


def test_other_words_are_less_alike_and_none_not_at_all(known: Wordings) -> None:
    part = known.nearest("put it on the shelf")
    assert 0 < part < known.nearest("put the lot on hold") < 1
    assert known.nearest("beyond saving") == 0
    assert Wordings([], {}).nearest("stop") == 0
    assert np.argmax(known.alike("please hold the lot")) == 1


def test_an_unfamiliar_wording_goes_to_a_person_though_a_word_is_known(tmp_path: Path) -> None:
    normal = normaliser(tmp_path)
    found = normal(raw("my grandmother always said, stop slouching at table"))
    assert found.verdict == "review"
    assert found.ambiguity_score >= REVIEW_AT
    assert "unfamiliar" in found.reasons
    assert "unfamiliar" not in normal(raw("CMD=HOLD;LOT=L2417", "scan-01")).reasons


def test_most_wordings_that_nothing_was_fitted_to_are_unfamiliar(tmp_path: Path) -> None:
    normal = normaliser(tmp_path)
    items = load_corpus(UNSEEN)
    seen = normal.understand([one.text for one in items], [one.kind for one in items])
    assert len(items) >= 60
    assert 0.5 < np.mean([normal.familiar(one) < FAMILIAR_AT for one in seen]) < 0.8
