from __future__ import annotations

import numpy as np
import pytest

from foveola.learn.federate.server_step import LAST, Moments, step

ZEROS = np.zeros(3, np.float32)
NOTHING = Moments(ZEROS, ZEROS)


def test_plain_is_what_the_nodes_agreed_on() -> None:
    change = np.array([1, -2, 0], np.float32)
    moved, moments = step("plain", NOTHING, change, 0, rate=0.02, horizon=10)
    assert moved is change
    assert moments is NOTHING


def test_adam_moves_small_and_large_entries_alike_and_silent_ones_not_at_all() -> None:
    moments = NOTHING
    change = np.array([10, -0.1, 0], np.float32)
    for number in range(100):
        moved, moments = step("adam", moments, change, number, rate=0.02, horizon=10**9)
    assert moved[0] == pytest.approx(0.02 * 10 / (10 * np.sqrt(1 - 0.99**100)), rel=1e-3)
    assert -moved[1] == pytest.approx(float(moved[0]), rel=0.02)
    assert moved[2] == 0


@pytest.mark.parametrize(("number", "left"), [(0, 1.0), (5, 0.525), (10, LAST), (1000, LAST)])
def test_the_step_comes_to_rest(number: int, left: float) -> None:
    moments = Moments(np.ones(3, np.float32), np.ones(3, np.float32))
    moved, _ = step("adam", moments, np.ones(3, np.float32), number, rate=0.1, horizon=10)
    assert moved == pytest.approx(0.1 * left / 1.001)
