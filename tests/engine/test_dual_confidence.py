from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.engine.dual_confidence import (
    Confidence,
    area_under_risk,
    fit,
    read_confidence,
    risk_bound,
    risk_curve,
)
from foveola.exchange import Damaged

VERDICTS = st.lists(st.tuples(st.floats(-50, 0), st.booleans()), min_size=20, max_size=80)


def drawn(count: int, seed: int) -> tuple[list[float], list[bool]]:
    """Scores whose probability of being right is known: p = exp(score)."""
    chance = random.Random(seed)
    scores = [math.log(chance.uniform(0.3, 1)) for _ in range(count)]
    return scores, [chance.random() < math.exp(score) for score in scores]


@settings(max_examples=60, deadline=None)
@given(VERDICTS)
def test_more_score_never_means_less_confidence(pairs: list[tuple[float, bool]]) -> None:
    scores, right = zip(*pairs, strict=True)
    confidence = fit(scores, right, model_hash="h")
    told = [confidence(score) for score in sorted(scores)]
    assert told == sorted(told)
    assert all(0 < one < 1 for one in told)
    assert confidence(float("-inf")) == told[0]
    assert confidence(float("nan")) == 0.0


def test_probabilities_are_calibrated_on_answers_that_were_not_learnt_from() -> None:
    confidence = fit(*drawn(4000, 1), model_hash="h")
    scores, right = drawn(4000, 2)
    for low in (0.3, 0.5, 0.7, 0.9):
        inside = [ok for score, ok in zip(scores, right, strict=True) if low <= confidence(score) < low + 0.1]
        assert sum(inside) / len(inside) == pytest.approx(low + 0.05, abs=0.07)


def test_the_threshold_bounds_the_risk_on_answers_that_were_not_learnt_from() -> None:
    broken, taken_in_all = 0, 0
    for seed in range(30):
        confidence = fit(*drawn(2000, seed), model_hash="h", target_risk=0.1, delta=0.1)
        scores, right = drawn(2000, 1000 + seed)
        taken = [ok for score, ok in zip(scores, right, strict=True) if confidence(score) >= confidence.threshold]
        taken_in_all += len(taken)
        broken += bool(taken) and taken.count(False) / len(taken) > 0.1
    assert broken <= 6  # 10 % of 30 are expected at most, and some luck
    assert taken_in_all > 30 * 100


def test_where_no_threshold_bounds_the_risk_nothing_is_taken() -> None:
    scores, _ = drawn(200, 3)
    confidence = fit(scores, [False] * 200, model_hash="h")
    assert confidence.threshold > 1


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    assert risk_bound(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-9)  # exact for none wrong
    assert risk_bound(5, 100, 0.05) == pytest.approx(0.10225, abs=1e-4)
    assert risk_bound(3, 3, 0.05) == 1.0
    assert risk_bound(0, 0, 0.05) == 1.0


def test_the_curve_and_its_area() -> None:
    curve = risk_curve([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    assert [(point.coverage, pytest.approx(point.risk)) for point in curve] == [(0.25, 0.0), (0.75, 1 / 3), (1.0, 0.5)]
    assert area_under_risk(curve) == pytest.approx(0.5 / 3 + 0.25 * 0.5)
    blind = risk_curve([0.5] * 4, [True, True, False, False])
    assert area_under_risk(blind) == pytest.approx(0.5)


def test_too_few_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="19 scores and 19 verdicts; expected the same number, at least 20"):
        fit([0.0] * 19, [True] * 19, model_hash="h")
    with pytest.raises(ValueError, match="between 0 and 1"):
        fit([0.0] * 20, [True] * 20, model_hash="h", target_risk=0)


def test_written_and_read(tmp_path: Path) -> None:
    confidence = fit(*drawn(100, 5), model_hash="a" * 64)
    file = tmp_path / "confidence.json"
    file.write_text(json.dumps(confidence.to_json()))
    assert read_confidence(file, "a" * 64) == confidence
    with pytest.raises(Damaged, match="was made for model aaaaaaaaaaaa, and the small one is bbbbbbbbbbbb"):
        read_confidence(file, "b" * 64)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"scores": []},
        {"scores": [0.0, -1.0], "probabilities": [0.1, 0.2]},
        {"scores": [0.0]},
        {"threshold": float("nan")},
        {"more": 1},
        {"scores": 5},
    ],
)
def test_what_is_no_confidence_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    document = Confidence("h", (-1.0, 0.0), (0.2, 0.9), 0.5, 0.02, 0.1, 30).to_json()
    file = tmp_path / "confidence.json"
    file.write_text(json.dumps({**document, **change}))
    with pytest.raises(Damaged, match="confidence.json is no confidence of this version; make one with"):
        read_confidence(file, "h")
