from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.exchange import Invalid
from foveola.rollout.canary import Observed, Progress, advance, breaches, current, weights_of
from foveola.rollout.release import Analysis, Canary, release_of
from tests.rollout.making import canary, model

GOOD = Observed(100, 0.0, 0.3, 0.97, 0.9)
ONE = Canary("v2", (10, 50, 100), 60.0, analysis=Analysis(failures=2))
START = Progress("v2", "Progressing", 0, 10, 0.0)


def test_step_by_step_to_promotion() -> None:
    seen = [START]
    for now in (30.0, 61.0, 122.0, 183.0, 500.0):
        seen.append(advance(ONE, seen[-1], GOOD, now))
    assert [(one.phase, one.weight) for one in seen] == [
        ("Progressing", 10), ("Progressing", 10), ("Progressing", 50), ("Progressing", 100), ("Promoted", 100),
        ("Promoted", 100),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"error_rate": 0.5}, "error rate 0.5, allowed 0.02"),
        ({"latency_s": 3.0}, "p95 latency in s 3, allowed 1"),
        ({"accuracy": 0.8}, "accuracy 0.8, allowed 0.92"),
        ({"similarity": 0.7}, "similarity of attention (drift) 0.7, allowed 0.82"),
        ({"drift_share": 1.5}, "drift chart as a share of its bound 1.5, allowed 1"),
        ({"similarity": math.nan}, "similarity of attention (drift) nan, allowed 0.82"),
    ],
)
def test_breaches_in_a_row_roll_back_with_the_reason(change: dict[str, float], reason: str) -> None:
    bad = replace(GOOD, **change)
    once = advance(ONE, START, bad, 1.0)
    assert (once.phase, once.failures, once.reason) == ("Progressing", 1, f"{reason} (1 of 2)")
    twice = advance(ONE, once, bad, 2.0)
    assert (twice.phase, twice.weight, twice.reason) == ("RolledBack", 0, reason)
    assert advance(ONE, twice, GOOD, 1e6) == twice


def test_without_requests_nothing_is_decided() -> None:
    for nothing in (Observed(), Observed(3, 1.0)):
        waiting = advance(ONE, START, nothing, 1e6)
        assert (waiting.phase, waiting.step) == ("Progressing", 0)
        assert waiting.reason == "waiting for 50 requests"


def test_a_pause_keeps_the_place() -> None:
    paused = advance(replace(ONE, paused=True), START, GOOD, 1e6)
    assert (paused.phase, paused.weight, paused.step) == ("Paused", 10, 0)
    again = advance(ONE, paused, GOOD, 2e6)
    assert (again.phase, again.step, again.since_s) == ("Progressing", 0, 2e6)


def test_a_figure_that_is_missing_is_no_breach() -> None:
    assert breaches(Analysis(), Observed(100)) == []


def test_progress_survives_the_status() -> None:
    progress = advance(ONE, START, replace(GOOD, accuracy=0.1), 7.0)
    assert Progress.of(progress.to_json()) == progress
    assert Progress.of(None) is None


def test_another_image_is_another_canary_and_a_pause_is_not() -> None:
    release = release_of(model(canary=canary()))
    progress = current(release, None, 5.0)
    assert progress is not None
    assert (progress.weight, progress.since_s) == (10, 5.0)
    done = replace(progress, phase="RolledBack")
    assert current(release_of(model(canary=canary(paused=True))), done, 9.0) == done
    other = model(canary=canary())
    other["spec"]["versions"][1]["image"] = "foveola:3"
    fresh = current(release_of(other), done, 9.0)
    assert fresh is not None
    assert fresh.phase == "Progressing"


@given(st.lists(st.integers(0, 100), min_size=2, max_size=5).filter(lambda found: sum(found) > 0), st.integers(0, 100))
def test_weights_always_sum_to_a_hundred(given_weights: list[int], share: int) -> None:
    body = model()
    body["spec"]["versions"] = [{"name": f"v{i}", "image": "i", "weight": w} for i, w in enumerate(given_weights)]
    plain = weights_of(release_of(body), None)
    assert sum(plain.values()) == 100
    total = sum(given_weights)
    assert all(abs(plain[f"v{i}"] - 100 * w / total) < 1 for i, w in enumerate(given_weights))
    body["spec"]["canary"] = {"version": "v1"}
    release = release_of(body)
    found = weights_of(release, Progress("v1", "Progressing", 0, share, 0.0))
    assert sum(found.values()) == 100
    assert found["v1"] == share


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"canary": {"version": "v2", "steps": [50, 20]}}, "The canary's steps [50, 20] must rise."),
        ({"canary": {"version": "v9"}}, "There is no version 'v9' in ocr; there are: v1, v2."),
        ({"versions": [{"name": "a", "image": "i", "weight": 0}]}, "All weights are 0"),
        ({"versions": [{"name": "a", "image": "i", "weight": 1}] * 2}, "Two versions have the same name"),
        ({"versions": [{"name": "a", "image": "i", "weight": 1}], "canary": {"version": "a"}}, "needs another version"),
    ],
)
def test_a_declaration_that_refers_to_nothing_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        release_of(model(**change))
    assert message in refused.value.message
