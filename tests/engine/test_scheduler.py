"""The loop around a fake model: pieces of prompts, fair shares, deadlines, memory, guesses, and a change of weights."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.sessions import Version
from foveola.engine.speculation import RunCosts
from foveola.exchange import Invalid, Late, Piece, Request, Unavailable
from tests.engine.fakes import FakeRunner, fake_engine, request, until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def in_thread(engine: Engine, asked: Request) -> tuple[threading.Thread, list[Piece | Exception]]:
    got: list[Piece | Exception] = []

    def read() -> None:
        try:
            got.extend(engine.pieces(asked))
        except Exception as error:  # noqa: BLE001 - looked at by the test
            got.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, got


def text(got: list[Piece | Exception]) -> str:
    return "".join(piece.text for piece in got if isinstance(piece, Piece))


def test_a_long_prompt_comes_in_chunks_and_the_others_go_on() -> None:
    runner = FakeRunner(slots=2, gated=True)
    engine = fake_engine(runner, prefill_chunk=4, prefill_alone=4)
    assert runner.gate is not None
    first, said = in_thread(engine, request("abcdef"))
    runner.gate.release(3)  # two chunks and a step
    until(lambda: len(runner.calls) == 3)
    second, _ = in_thread(engine, request("a long prompt of several chunks"))
    until(lambda: len(engine._queue._waiting) == 1)
    runner.gate.release(200)
    first.join()
    second.join()
    assert text(said) == "abcdef"
    later = runner.calls[4:]
    chunks = [index for index, call in enumerate(later) if call == "prefill"]
    assert len(chunks) == 8
    assert all(later[index + 1] == "decode" for index in chunks[:3])  # the first one runs for so long


def test_alone_a_prompt_comes_in_larger_chunks() -> None:
    runner = FakeRunner(slots=2)
    assert answer_once(fake_engine(runner, prefill_chunk=4, prefill_alone=64), request("x" * 30))[0] == "x" * 30
    assert runner.calls.count("prefill") == 1


def test_short_prompts_overtake_but_nobody_is_overtaken_for_ever() -> None:
    runner = FakeRunner(slots=4, gated=True)
    engine = fake_engine(runner, prefill_chunk=8, prefill_alone=8)
    assert runner.gate is not None
    threads = [in_thread(engine, request(one * size))[0] for one, size in (("a", 60), ("b", 5), ("c", 5))]
    until(lambda: engine.health().active + engine.health().queued == 3)
    runner.gate.release(2000)
    for thread in threads:
        thread.join()
    assert engine.health().active == 0
    assert runner.moves  # the later ones were ready first, and rows changed places


async def test_higher_priority_is_answered_first() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner, patience_s=1000)
    order: list[str] = []

    async def ask(name: str, priority: int) -> None:
        async for _ in engine(replace(request(name), priority=priority)):
            pass
        order.append(name)

    tasks = [asyncio.create_task(ask("first", 0))]
    await asyncio.to_thread(until, lambda: engine.health().active == 1)
    for name, priority in (("low", -1), ("plain", 0), ("high", 5)):
        tasks.append(asyncio.create_task(ask(name, priority)))
        waiting = len(tasks) - 1
        await asyncio.to_thread(until, lambda waiting=waiting: engine._queue._waiting.__len__() == waiting)
    assert runner.gate is not None
    runner.gate.release(500)
    await asyncio.gather(*tasks)
    assert order == ["first", "high", "plain", "low"]


def test_a_deadline_ends_an_answer_and_a_wait() -> None:
    clock = Clock()
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner, clock=clock)
    assert runner.gate is not None
    running, said = in_thread(engine, replace(request("abcdef"), deadline_s=10))
    until(lambda: runner.entered == ["prefill"])
    waiting, heard = in_thread(engine, replace(request("xyz"), deadline_s=5))
    until(lambda: len(engine._queue._waiting) == 1)
    clock.now = 6
    runner.gate.release()
    waiting.join()
    (late,) = heard
    assert isinstance(late, Late)
    assert late.status == 504
    assert late.message.startswith("The answer was not complete after 5 s, the deadline that came with the request.")
    clock.now = 11
    runner.gate.release()
    running.join()
    assert isinstance(said[-1], Late)
    assert text(said) == "ab"
    assert engine.health().active == 0


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), True, "soon"])
def test_a_deadline_is_a_time(value: object) -> None:
    with pytest.raises(Invalid, match="deadline_s is .* expected a finite number of seconds above 0"):
        next(fake_engine(FakeRunner()).pieces(replace(request(), deadline_s=value)))


def test_who_does_not_fit_into_memory_waits() -> None:
    """512 tokens of the fake are half a mebibyte: one long request fits beside a short one, not two long ones."""
    runner = FakeRunner(slots=4, max_length=1024, gated=True)
    engine = fake_engine(runner, kv_mib=1)
    assert runner.gate is not None
    threads = [in_thread(engine, request(f"{n}", max_tokens=900))[0] for n in range(3)]
    until(lambda: engine.health().active == 1 and len(engine._queue._waiting) == 2)
    runner.gate.release(20)
    for thread in threads:
        thread.join()
    assert runner.moves == []  # never two at once


def test_guesses_change_nothing_but_the_number_of_runs() -> None:
    sentence = "one two three, one two three, one two three, one two four."
    plain, quick = FakeRunner(), FakeRunner()
    costs = RunCosts((1.0, 1.1, 1.2, 1.3, 1.4))
    without = fake_engine(plain)
    with_guesses = fake_engine(quick)
    with_guesses._costs = costs
    assert answer_once(with_guesses, request(sentence))[0] == answer_once(without, request(sentence))[0] == sentence
    assert quick.calls.count("verify") > 5
    assert len(quick.calls) < 0.6 * len(plain.calls)
    text, usage = answer_once(with_guesses, request(sentence, max_tokens=20))
    assert (text, usage.completion_tokens) == (sentence[:20], 20)
    text, usage = answer_once(with_guesses, request(sentence, stop=("e, o",)))
    assert text == "one two thre"


def test_guesses_leave_seeded_sampling_as_it_is() -> None:
    asked = request("ab ab ab ab ab ab", temperature=8.0, seed=3, max_tokens=16)
    with_guesses = fake_engine(FakeRunner())
    with_guesses._costs = RunCosts((1.0, 1.01, 1.02))
    assert answer_once(with_guesses, asked)[0] == answer_once(fake_engine(FakeRunner()), asked)[0]


def test_after_a_switch_newcomers_get_the_new_weights_and_the_others_keep_theirs() -> None:
    old, new = FakeRunner(slots=2, gated=True), FakeRunner(slots=2, version=Version("new", "v", "l"))
    engine = fake_engine(old)
    assert old.gate is not None
    thread, said = in_thread(engine, request("abcdef"))
    old.gate.release(3)
    until(lambda: len(old.calls) == 3)
    switching = threading.Thread(target=engine.switch, args=(new,))
    switching.start()
    old.gate.release(1)
    switching.join()
    newcomer, heard = in_thread(engine, request("xyz"))
    until(lambda: len(engine._queue._waiting) == 1)
    old.gate.release(2)
    until(lambda: "prefill" in new.calls)
    old.gate.release(50)
    thread.join()
    newcomer.join()
    assert (text(said), text(heard)) == ("abcdef", "xyz")
    hashes = [got[-1].usage.model_hash for got in (said, heard) if isinstance(got[-1], Piece) and got[-1].usage]
    assert hashes == ["hash", "new"]
    assert answer_once(engine, request("again"))[1].model_hash == "new"
    assert len(engine._scheduler._lanes) == 1


def test_back_on_weights_that_still_run_newcomers_join_their_lane() -> None:
    """Two lanes over one runner would both write its first KV row."""
    old, new = FakeRunner(slots=2, gated=True), FakeRunner(slots=2, version=Version("new", "v", "l"))
    engine = fake_engine(old)
    assert old.gate is not None
    first, said = in_thread(engine, request("abcdef"))
    until(lambda: old.entered == ["prefill"])
    there = threading.Thread(target=engine.switch, args=(new,))
    there.start()
    old.gate.release(2)
    there.join()
    back = threading.Thread(target=engine.switch, args=(old,))
    back.start()
    old.gate.release(2)
    back.join()
    assert [lane.runner for lane in engine._scheduler._lanes] == [old]
    second, heard = in_thread(engine, request("uvwxyz"))
    old.gate.release(100)
    first.join()
    second.join()
    assert (text(said), text(heard)) == ("abcdef", "uvwxyz")


def test_new_weights_that_fail_at_once_are_given_up() -> None:
    old, new = FakeRunner(), FakeRunner(version=Version("new", "v", "l"))
    new.fail = lambda call: RuntimeError("the new weights are broken")
    engine = fake_engine(old)
    returned: list[object] = []
    engine._scheduler.on_return = returned.append
    engine.switch(new)
    with pytest.raises(Unavailable):
        answer_once(engine, request("abc"))
    text, usage = answer_once(engine, request("abc"))
    assert (text, usage.model_hash) == ("abc", "hash")
    assert returned == [new]
    assert engine.health().ailment is None


def test_new_weights_that_have_worked_are_not_given_up_for_one_failure() -> None:
    new = FakeRunner(version=Version("new", "v", "l"))
    engine = fake_engine(FakeRunner())
    engine.switch(new)
    assert answer_once(engine, request("abc"))[1].model_hash == "new"
    new.fail = lambda call: RuntimeError("once")
    with pytest.raises(Unavailable):
        answer_once(engine, request("abc"))
    new.fail = lambda call: None
    assert answer_once(engine, request("abc"))[1].model_hash == "new"


def test_an_engine_of_parts_has_nothing_to_patch() -> None:
    engine = fake_engine(FakeRunner())
    assert engine.model_hash == "hash"
    with pytest.raises(Unavailable, match="put together from parts"):
        engine.replace_submodule("visual", {"weight": np.zeros(1)})
    engine.close(1)
    with pytest.raises(Unavailable, match="stopping"):
        engine.switch(FakeRunner())
