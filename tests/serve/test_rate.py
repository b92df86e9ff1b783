from __future__ import annotations

import pytest

from foveola.serve.rate import BURST_S, Rates


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    rates = Rates(clock)
    burst = int(BURST_S)  # 60 a minute are one a second
    assert [rates.take("a", 60) for _ in range(burst)] == [0.0] * burst
    assert rates.take("a", 60) == pytest.approx(1.0)
    assert rates.take("b", 60) == 0.0  # others have their own
    clock.now += 0.75
    assert rates.take("a", 60) == pytest.approx(0.25)
    clock.now += 0.25
    assert rates.take("a", 60) == 0.0
    clock.now += 1000
    assert [rates.take("a", 60) for _ in range(burst)] == [0.0] * burst
    assert rates.take("a", 60) > 0


def test_a_slow_rate_still_lets_one_pass() -> None:
    clock = Clock()
    rates = Rates(clock)
    assert rates.take("a", 1) == 0.0
    assert rates.take("a", 1) == pytest.approx(60.0)


def test_no_limit_remembers_nobody() -> None:
    rates = Rates(Clock())
    assert [rates.take("a", 0) for _ in range(100)] == [0.0] * 100
    assert len(rates) == 0


def test_memory_is_bounded_and_the_longest_absent_is_forgotten() -> None:
    rates = Rates(Clock(), max_clients=3)
    for client in "abc":
        rates.take(client, 1)
    rates.take("a", 1)
    rates.take("d", 1)
    assert len(rates) == 3
    assert rates.take("a", 1) > 0  # still known
    assert rates.take("b", 1) == 0.0  # forgotten, so new
