"""Guesses from the text so far, and how many of them pay."""

from __future__ import annotations

import pytest

from foveola.engine.speculation import FIRST_TRUST, NO_GUESSES, PromptLookup, RunCosts
from foveola.exchange import Damaged

CHEAP = RunCosts((1.0, 1.01, 1.02, 1.03, 1.04))


def after(history: list[int], *drawn: int, costs: RunCosts = CHEAP) -> PromptLookup:
    lookup = PromptLookup(history, costs)
    for token in drawn:
        lookup.push(token)
    return lookup


def test_what_followed_last_time_is_guessed() -> None:
    lookup = after([1, 2, 3, 4, 5, 6, 9, 9], 2, 3)
    assert lookup.guesses(4) == (4, 5, 6, 9)
    assert lookup.guesses(2) == (4, 5)
    assert after([1, 2, 3, 4, 9, 2, 3, 7, 8], 2, 3).guesses(1) == (7,)  # the last time counts
    assert after([1, 2, 3, 4, 9, 9, 2, 3, 7], 1, 2, 3).guesses(1) == (4,)  # three in a row say more than two
    assert after([1, 2, 3], 4, 5).guesses(4) == ()


def test_its_own_answer_counts() -> None:
    assert after([0], 7, 8, 9, 1, 7, 8).guesses(3) == (9, 1, 7)


def test_no_guess_where_it_would_not_pay() -> None:
    dear = RunCosts((1.0, 1.9, 2.8))
    assert dear.guesses(0.5) == 0
    assert dear.guesses(1.0) == 2
    assert CHEAP.guesses(0.9) == 4
    assert NO_GUESSES.guesses(1.0) == 0
    assert after([1, 2, 3, 9], 1, 2, costs=dear).guesses(3) == ()


def test_trust_follows_what_was_right() -> None:
    lookup = after([1, 2, 3, 1, 2, 3], *([1, 2, 3] * 8))
    assert lookup.trust > 0.9
    wrong = after([1, 2, 3], *(token for number in range(10) for token in (1, 2, 50 + number)))
    assert wrong.trust < FIRST_TRUST


def test_a_plan_with_nonsense_is_refused() -> None:
    assert RunCosts.of({}) == NO_GUESSES
    assert RunCosts.of({"run_seconds": [0.01, 0.02]}) == RunCosts((0.01, 0.02))
    assert RunCosts.of({"run_seconds": [0.01, 0.02], "guess": True}) == RunCosts((0.01, 0.02))
    assert RunCosts.of({"run_seconds": [0.01, 0.02], "guess": False}) == NO_GUESSES
    for bad in (3, ["a"], [0.0], [float("inf")]):
        with pytest.raises(Damaged, match="plan.run_seconds is a list of seconds"):
            RunCosts.of({"run_seconds": bad})
