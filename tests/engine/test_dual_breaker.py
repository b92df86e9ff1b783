from __future__ import annotations

from foveola.engine.dual_breaker import Breaker


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    breaker = Breaker(3, 10, Clock())
    for _ in range(2):
        breaker.failure()
    breaker.success()
    for _ in range(2):
        breaker.failure()
    assert breaker.state == "closed"
    breaker.failure()
    assert breaker.state == "open"
    assert not breaker.allow()


def test_after_the_cooldown_one_at_a_time_is_tried() -> None:
    clock = Clock()
    breaker = Breaker(1, 10, clock)
    breaker.failure()
    clock.now += 9.9
    assert not breaker.allow()
    clock.now += 0.1
    assert breaker.state == "half-open"
    assert [breaker.allow(), breaker.allow()] == [True, False]
    breaker.forget()  # cancelled: the next one may try
    assert breaker.allow()
    breaker.failure()
    assert breaker.state == "open"
    clock.now += 10
    assert breaker.allow()
    breaker.success()
    assert breaker.state == "closed"
    assert breaker.allow()
