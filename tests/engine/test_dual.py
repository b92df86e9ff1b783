"""Two engines: who is asked, whose answer is given, and what is said about it. No clock but a fake one, no sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from foveola.engine.dual import Dual, DualOptions
from foveola.exchange import (
    BadImage,
    Busy,
    Invalid,
    OverBudget,
    Piece,
    Request,
    Route,
    Turn,
    Unavailable,
    Usage,
)

SURE, UNSURE = -0.1, -5.0
ASK = Request("r", (Turn("user", "a"),))


@dataclass
class Engine:
    """Says ``text`` with ``logprob``; waits for ``gate`` before piece ``gate_at``; raises ``error`` at ``error_at``."""

    text: str
    logprob: float = SURE
    error: Exception | None = None
    error_at: int = 0
    gate: asyncio.Event | None = None
    gate_at: int = 0
    asked: list[Request] = field(default_factory=list)
    closed: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        self.asked.append(request)
        self.begun.set()
        last = Piece("", 1, 0.0, "stop", Usage(3, 0, 2))
        try:
            for at, piece in enumerate((Piece(self.text, 1, self.logprob), last)):
                if self.gate is not None and at == self.gate_at:
                    await self.gate.wait()
                if self.error is not None and at == self.error_at:
                    raise self.error
                yield piece
        finally:
            self.closed += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def dual(small: Engine, large: Engine, clock: Clock | None = None, **options: float) -> Dual:
    return Dual(
        ("small", small, "s" * 64),
        ("large", large, "l" * 64),
        lambda score: 0.9 if score > -1 else 0.4,
        0.8,
        DualOptions(**options),  # type: ignore[arg-type]
        clock=clock or Clock(),
    )


async def told(answerer: Dual, request: Request = ASK) -> tuple[str, Route, str]:
    pieces = [piece async for piece in answerer(request)]
    usage = pieces[-1].usage
    assert usage is not None
    assert usage.route is not None
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    return "".join(piece.text for piece in pieces), usage.route, usage.model_hash


async def test_a_confident_answer_of_the_small_one_is_given() -> None:
    small, large = Engine("pits"), Engine("scratch")
    text, route, model_hash = await told(dual(small, large))
    assert (text, model_hash) == ("pits", "s" * 64)
    assert route == Route("small", "confident", 0.9, ("small",))
    assert large.asked == []


async def test_an_unsure_answer_is_asked_again() -> None:
    small, large = Engine("pits", UNSURE), Engine("scratch")
    text, route, model_hash = await told(dual(small, large))
    assert (text, model_hash) == ("scratch", "l" * 64)
    assert route == Route("large", "unsure", 0.4, ("small", "large"))
    assert small.closed == large.closed == 1


async def test_the_threshold_can_be_set() -> None:
    small, large = Engine("pits", UNSURE), Engine("scratch")
    assert (await told(dual(small, large, threshold=0.0)))[0] == "pits"
    assert (await told(dual(Engine("pits", SURE), large, threshold=1.0)))[0] == "scratch"


@pytest.mark.parametrize("error", [Unavailable("Dead."), RuntimeError("secret"), Busy("Full.")])
async def test_a_small_one_that_fails_is_replaced(error: Exception) -> None:
    text, route, _ = await told(dual(Engine("pits", error=error), Engine("scratch")))
    assert (text, route) == ("scratch", Route("large", "failed_over", None, ("small", "large")))


async def test_what_is_too_long_for_the_small_one_goes_to_the_large_one() -> None:
    text, route, _ = await told(dual(Engine("pits", error=OverBudget("Too long.")), Engine("scratch")))
    assert (text, route.reason) == ("scratch", "over_budget")


@pytest.mark.parametrize("error", [BadImage("Broken."), Invalid("top_k.", field="top_k")])
async def test_what_is_wrong_with_the_request_is_refused_at_once(error: Exception) -> None:
    large = Engine("scratch")
    with pytest.raises(type(error)):
        await told(dual(Engine("pits", error=error), large))
    assert large.asked == []


@pytest.mark.parametrize("error", [Unavailable("Dead."), RuntimeError("secret"), Busy("Full.")])
async def test_an_unsure_answer_is_better_than_none(error: Exception) -> None:
    text, route, model_hash = await told(dual(Engine("pits", UNSURE), Engine("scratch", error=error)))
    assert (text, model_hash) == ("pits", "s" * 64)
    assert route == Route("small", "large_failed", 0.4, ("small", "large"))


async def test_a_large_one_that_does_not_begin_in_time() -> None:
    never = asyncio.Event()
    large = Engine("scratch", gate=never)
    text, route, _ = await told(dual(Engine("pits", UNSURE), large, patience_s=0.01))
    assert (text, route.reason) == ("pits", "large_late")
    assert large.closed == 1


async def test_a_large_one_that_fails_in_the_middle_is_told() -> None:
    answerer = dual(Engine("pits", UNSURE), Engine("scratch", error=Unavailable("Dead."), error_at=1))
    got = []
    with pytest.raises(Unavailable, match="Dead"):
        async for piece in answerer(ASK):
            got.append(piece.text)
    assert got == ["scratch"]


async def test_when_both_fail_the_last_reason_is_told() -> None:
    with pytest.raises(Busy, match="Full"):
        await told(dual(Engine("", error=Unavailable("Dead.")), Engine("", error=Busy("Full."))))
    with pytest.raises(Unavailable, match="Neither of the two engines"):
        await told(dual(Engine("", error=Unavailable("Dead.")), Engine("", error=RuntimeError("secret"))))


async def test_a_slow_small_one_is_hedged() -> None:
    never = asyncio.Event()
    small, large = Engine("pits", gate=never), Engine("scratch")
    text, route, _ = await told(dual(small, large, hedge_s=0.01))
    assert (text, route) == ("scratch", Route("large", "hedged", None, ("small", "large")))
    assert small.closed == 1  # it works no more


async def test_half_of_a_deadline_is_the_time_to_hedge_and_the_rest_is_what_the_other_gets() -> None:
    clock, never = Clock(), asyncio.Event()
    small, large = Engine("pits", gate=never), Engine("scratch")
    request = Request("r", ASK.turns, deadline_s=0.02)
    answering = asyncio.create_task(told(dual(small, large, clock, hedge_s=100), request))
    await small.begun.wait()
    clock.now = 0.015
    assert (await answering)[0] == "scratch"
    assert small.asked[0].deadline_s == 0.02
    assert large.asked[0].deadline_s == pytest.approx(0.005)


async def test_in_a_race_a_confident_small_one_wins_and_an_unsure_one_waits() -> None:
    for logprob, expected in ((SURE, "pits"), (UNSURE, "scratch")):
        go_small, go_large = asyncio.Event(), asyncio.Event()
        small, large = Engine("pits", logprob, gate=go_small), Engine("scratch", gate=go_large)
        answering = asyncio.create_task(told(dual(small, large, hedge_s=0.01)))
        await large.begun.wait()
        go_small.set()
        while not small.closed:
            await asyncio.sleep(0)
        go_large.set()
        text, route, _ = await answering
        assert (text, route.reason) == (expected, "hedged")
        assert route.confidence == (0.9 if logprob == SURE else 0.4)


async def test_in_a_race_that_the_large_one_fails_the_small_one_is_heard() -> None:
    go = asyncio.Event()
    small, large = Engine("pits", UNSURE, gate=go), Engine("", error=Unavailable("Dead."))
    answering = asyncio.create_task(told(dual(small, large, hedge_s=0.01)))
    await large.begun.wait()
    go.set()
    text, route, _ = await answering
    assert (text, route.reason) == ("pits", "large_failed")
    both = dual(Engine("", error=Unavailable("One."), gate=go), Engine("", error=Unavailable("Two."), gate=go))
    with pytest.raises(Unavailable):
        await told(both)


async def test_an_engine_that_keeps_failing_is_left_alone_then_tried() -> None:
    clock = Clock()
    small, large = Engine("pits", error=Unavailable("Dead.")), Engine("scratch")
    answerer = dual(small, large, clock, failures_until_open=3, cooldown_s=10)
    for _ in range(3):
        assert (await told(answerer))[1].reason == "failed_over"
    assert answerer.small.breaker.state == "open"
    text, route, _ = await told(answerer)
    assert (text, route) == ("scratch", Route("large", "small_down", None, ("large",)))
    assert len(small.asked) == 3
    clock.now = 10
    assert (await told(answerer))[1].reason == "failed_over"  # one is tried, fails, and it is open again
    assert answerer.small.breaker.state == "open"
    clock.now = 20
    small.error = None
    assert (await told(answerer))[1].reason == "confident"
    assert answerer.small.breaker.state == "closed"


async def test_a_large_one_that_keeps_failing_is_left_alone() -> None:
    small, large = Engine("pits", UNSURE), Engine("scratch", error=Unavailable("Dead."))
    answerer = dual(small, large, failures_until_open=2)
    reasons = [(await told(answerer))[1].reason for _ in range(3)]
    assert reasons == ["large_failed", "large_failed", "large_down"]
    assert len(large.asked) == 2
    small.error = Unavailable("Dead too.")
    with pytest.raises(Unavailable, match="Dead too"):
        await told(answerer)


async def test_a_full_queue_opens_no_breaker() -> None:
    small = Engine("pits", error=Busy("Full."))
    answerer = dual(small, Engine("scratch"), failures_until_open=1)
    for _ in range(3):
        await told(answerer)
    assert answerer.small.breaker.state == "closed"
    assert len(small.asked) == 3


@pytest.mark.parametrize("where", ["small", "large", "race"])
async def test_who_leaves_stops_both(where: str) -> None:
    never = asyncio.Event()
    small = Engine("pits", UNSURE, gate=None if where == "large" else never)
    large = Engine("scratch", gate=never, gate_at=1 if where == "large" else 0)
    answerer = dual(small, large, hedge_s=0.01 if where == "race" else 100)
    waiting = asyncio.create_task(told(answerer))
    await (small if where == "small" else large).begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert small.closed == 1
    assert large.closed == len(large.asked)
    assert answerer.large.breaker.state == answerer.small.breaker.state == "closed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, "`threshold` is 1.5; expected 0 (never ask the large one) to 1."),
        ({"hedge_s": 0}, "`hedge_s` is 0; expected a number of seconds above 0."),
        ({"failures_until_open": 0}, "`failures_until_open` is 0; expected at least 1."),
    ],
)
def test_options_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        DualOptions(**options)  # type: ignore[arg-type]
    assert str(caught.value) == message
