from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.bridge.calibrate import Calibrator, forgetful, halves
from foveola.bridge.corpus import load_corpus
from foveola.bridge.intents import load_intents
from foveola.bridge.score import (
    FEATURES,
    REVIEW_AT,
    Calibration,
    fit_logistic,
    load_calibration,
    reliability,
    review_threshold,
)
from tests.bridge.making import letters


@given(st.floats(0, 1), st.floats(0, 1))
def test_ambiguity_is_the_probability_on_another_scale(one: float, other: float) -> None:
    calibration = load_calibration()
    assert calibration.ambiguity(calibration.review_p) == pytest.approx(REVIEW_AT)
    low, high = sorted((one, other))
    assert 0 <= calibration.ambiguity(low) <= calibration.ambiguity(high) <= 1


def test_regression_finds_the_probabilities_that_made_the_data() -> None:
    rng = np.random.default_rng(3)
    features = np.zeros((20_000, len(FEATURES)))
    features[:, 0] = 1
    features[:, 2] = rng.uniform(0, 1, len(features))
    truth = 1 / (1 + np.exp(-(1 - 4 * features[:, 2])))
    wrong = (rng.uniform(size=len(features)) < truth).astype(float)
    fitted = Calibration(1, 1, fit_logistic(features, wrong), 0.1)
    assert np.abs(fitted.wrong(features) - truth).max() < 0.03
    for one in reliability(fitted.wrong(features), wrong):
        assert abs(one["predicted"] - one["observed"]) < 0.03


def test_the_threshold_lets_only_the_stated_share_pass() -> None:
    rng = np.random.default_rng(4)
    p = rng.uniform(0, 0.6, 50_000)
    wrong = (rng.uniform(size=len(p)) < p).astype(float)
    threshold = review_threshold(p, wrong, 0.01)
    assert 0.005 < (wrong * (p < threshold)).mean() <= 0.0105


def test_shares_are_a_distribution() -> None:
    shares = load_calibration().shares(np.eye(13), np.zeros((13, 13)), np.zeros((13, 13)))
    assert shares.sum(axis=1) == pytest.approx(np.ones(13))
    assert (shares.argmax(axis=1) == np.arange(13)).all()


def test_forgetting_takes_half_of_the_words() -> None:
    intents = load_intents()
    half = forgetful(intents, 1)
    assert half.names == intents.names
    assert len(half["SCRAP"].zh) == len(intents["SCRAP"].zh) // 2
    assert set(half["SCRAP"].zh) < set(intents["SCRAP"].zh)
    assert forgetful(intents, 1) == half


def test_fitting_and_judging_on_a_part_of_the_corpus() -> None:
    items = load_corpus()[::6]
    calibrator = Calibrator(load_intents(), letters, items, strangers=1)
    fitting, judging = halves(len(items), 0)
    assert not set(fitting) & set(judging)
    found = calibrator.judge(calibrator.fit(fitting), judging)
    assert found["accuracy"] > 0.85
    assert found["accuracy_top3"] >= found["accuracy"] >= found["accuracy_encoder_alone"]
    assert sum(one["count"] for one in found["reliability"]) == found["count"] == len(judging)
