"""The engine around a fake model: streaming, order, back-pressure, cancelling, dying and closing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import cast

import pytest

from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.exchange import Answer, BadImage, Busy, Invalid, Piece, Refusal, Request, Unavailable
from tests.engine.fakes import FakePreparing, FakeRunner, fake_engine, request, until


def stream(engine: Engine, asked: Request) -> aclosing[AsyncGenerator[Piece]]:
    return aclosing(cast("AsyncGenerator[Piece]", engine(asked)))


async def collect(engine: Engine, asked: Request) -> list[Piece]:
    async with stream(engine, asked) as pieces:
        return [piece async for piece in pieces]


async def text_of(engine: Engine, asked: Request) -> str:
    return "".join(piece.text for piece in await collect(engine, asked))


def open_gate(gate: threading.Semaphore | None, times: int = 1) -> None:
    assert gate is not None
    gate.release(times)


async def test_an_engine_is_an_answer() -> None:
    answer: Answer = fake_engine(FakeRunner())
    pieces = [piece async for piece in answer(request("two scratches 划痕 🙂"))]
    assert "".join(piece.text for piece in pieces) == "two scratches 划痕 🙂"
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    last = pieces[-1]
    assert last.finish == "stop"
    assert last.usage is not None
    size = len("two scratches 划痕 🙂".encode())
    assert (last.usage.prompt_tokens, last.usage.visual_tokens, last.usage.completion_tokens) == (size, 0, size + 1)
    assert sum(piece.tokens for piece in pieces) == size + 1
    assert sum(piece.logprob for piece in pieces) == pytest.approx(0, abs=1e-4)


async def test_pictures_come_with_sizes_tokens_evidence_and_times() -> None:
    engine = fake_engine(FakeRunner())
    last = (await collect(engine, request("ok", images=(b"a", b"b"))))[-1]
    assert last.usage is not None
    assert last.usage.visual_tokens == 8
    assert [use.used for use in last.usage.images] == [(112, 28)] * 2
    assert [evidence.grid for evidence in last.usage.evidence] == [(1, 4)] * 2
    for evidence in last.usage.evidence:
        assert evidence.weights == pytest.approx([0.1] * 4)
        assert evidence.mass == pytest.approx(0.4)
    stages = last.usage.stages
    assert min(stages.queue_s, stages.vision_s, stages.prefill_s, stages.decode_s) >= 0
    parts = stages.queue_s + stages.vision_s + stages.prefill_s
    assert parts <= stages.first_token_s <= stages.total_s


async def test_log_probabilities_come_token_by_token_where_they_are_asked_for() -> None:
    engine = fake_engine(FakeRunner())
    pieces = await collect(engine, request("aé", logprobs=2))
    told = [one for piece in pieces for one in piece.logprobs]
    assert [one.token for one in told] == [b"a", b"\xc3", b"\xa9", b""]  # the last one ends the answer
    assert all(one.top[0] == (one.token, pytest.approx(one.logprob, abs=1e-5)) and len(one.top) == 2 for one in told)
    assert sum(piece.tokens for piece in pieces) == len(told)
    assert sum(piece.logprob for piece in pieces) == pytest.approx(sum(one.logprob for one in told), abs=1e-5)
    assert [one.top for piece in await collect(engine, request("a", logprobs=0)) for one in piece.logprobs] == [(), ()]
    assert not any(piece.logprobs for piece in await collect(engine, request("a")))


@pytest.mark.parametrize(
    ("sampling", "text", "finish", "tokens"),
    [
        ({"max_tokens": 3}, "sto", "length", 3),
        ({"max_tokens": 20}, "stop here or there", "stop", 19),
        ({"stop": ("here",)}, "stop ", "stop", 9),
        ({"stop": ("there!", "or")}, "stop here ", "stop", 12),
        ({"stop": ("there!",)}, "stop here or there", "stop", 19),
        ({"stop": ("top h",), "max_tokens": 5}, "stop ", "length", 5),
        ({"stop": ("stop",)}, "", "stop", 4),
    ],
)
def test_where_an_answer_ends(sampling: dict[str, object], text: str, finish: str, tokens: int) -> None:
    engine = fake_engine(FakeRunner())
    pieces = list(engine.pieces(request("stop here or there", **sampling)))
    assert "".join(piece.text for piece in pieces) == text
    assert pieces[-1].finish == finish
    assert sum(piece.tokens for piece in pieces) == tokens


def test_an_unfinished_character_at_the_limit_is_marked() -> None:
    text, usage = answer_once(fake_engine(FakeRunner()), request("a划", max_tokens=2))
    assert text == "a\ufffd"
    assert usage.completion_tokens == 2


def test_an_answer_ends_where_its_slot_is_full() -> None:
    text, usage = answer_once(fake_engine(FakeRunner(max_length=16)), request("0123456789", max_tokens=16))
    assert text == "012345"
    assert usage.completion_tokens == 6


async def test_requests_are_answered_in_order_with_their_own_text() -> None:
    runner = FakeRunner()
    engine = fake_engine(runner)
    texts = [f"answer number {number}" for number in range(12)]
    assert await asyncio.gather(*(text_of(engine, request(text)) for text in texts)) == texts
    assert engine.health().active == engine.health().queued == 0


async def test_several_slots_decode_together_and_rows_follow_their_owners() -> None:
    runner = FakeRunner(slots=3)
    engine = fake_engine(runner)
    texts = ["short", "a much longer answer than the others", "of middle length", "late", "x", "yy", "zzz" * 9]
    assert await asyncio.gather(*(text_of(engine, request(text)) for text in texts)) == texts
    assert runner.moves
    assert runner.calls.count("decode") < sum(map(len, texts))


async def test_a_slow_reader_gets_merged_pieces_and_the_same_text() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    async with stream(engine, request("hello world")) as pieces:
        open_gate(runner.gate)
        first = await anext(pieces)
        open_gate(runner.gate, 11)
        until(lambda: engine.health().active == 0)
        rest = [piece async for piece in pieces]
    assert first.text == "h"
    assert [piece.text for piece in rest] == ["ello world"]
    assert rest[0].tokens == 11
    assert rest[0].finish == "stop"


async def test_leaving_frees_the_slot_within_one_step() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    async with stream(engine, request("hello world")) as pieces:
        open_gate(runner.gate, 3)
        text = ""
        while len(text) < 3:
            text += (await anext(pieces)).text
    assert runner.calls == ["prefill", "decode", "decode"]
    open_gate(runner.gate)  # the step that it may already be in
    await asyncio.to_thread(until, lambda: engine.health().active == 0)
    assert runner.calls.count("decode") <= 3
    open_gate(runner.gate, 99)
    assert await text_of(engine, request("next")) == "next"


async def test_cancelling_the_task_frees_the_slot() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    task = asyncio.create_task(collect(engine, request("hello")))
    await asyncio.to_thread(until, lambda: engine.health().active == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    open_gate(runner.gate)
    await asyncio.to_thread(until, lambda: engine.health().active == 0)
    assert runner.calls == ["prefill"]


async def test_a_cancelled_request_in_the_queue_never_runs() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    first = asyncio.create_task(text_of(engine, request("aa")))
    await asyncio.to_thread(until, lambda: engine.health().active == 1)
    second = asyncio.create_task(text_of(engine, request("bb", images=(b"x",))))
    third = asyncio.create_task(text_of(engine, request("cc")))
    await asyncio.to_thread(until, lambda: engine.health().queued == 2)
    second.cancel()
    await asyncio.wait({second})
    await asyncio.to_thread(until, lambda: engine.health().queued == 1)
    open_gate(runner.gate, 99)
    assert [await first, await third] == ["aa", "cc"]
    assert "encode" not in runner.calls


async def test_leaving_while_the_picture_is_decoded_never_runs() -> None:
    runner, preparing = FakeRunner(), FakePreparing()
    preparing.gate = threading.Semaphore(0)
    engine = fake_engine(runner, preparing, prepare_threads=1)
    decoding = asyncio.create_task(text_of(engine, request("aa")))
    await asyncio.to_thread(preparing.started.acquire)
    behind = asyncio.create_task(text_of(engine, request("bb")))
    await asyncio.to_thread(until, lambda: engine.health().queued == 2)
    decoding.cancel()
    behind.cancel()
    await asyncio.wait({decoding, behind})
    assert engine.health().queued == 1  # what runs in a thread cannot be stopped there
    preparing.gate.release(99)
    await asyncio.to_thread(until, lambda: engine.health().queued == 0)
    assert runner.calls == []
    assert not preparing.started.acquire(blocking=False)


async def test_a_full_queue_is_told_when_to_come_back() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner, queue_limit=2)
    inside = [asyncio.create_task(text_of(engine, request(f"{number}"))) for number in range(3)]
    await asyncio.to_thread(until, lambda: engine.health().active + engine.health().queued == 3)
    with pytest.raises(Busy, match=r"^3 requests are waiting or being answered.* ask again in 2 s\.$") as caught:
        await collect(engine, request("one too many"))
    assert caught.value.retry_after_s == pytest.approx(1.5)
    open_gate(runner.gate, 99)
    assert await asyncio.gather(*inside) == ["0", "1", "2"]
    assert await text_of(engine, request("now")) == "now"


def test_a_queue_of_length_zero_takes_what_has_a_slot() -> None:
    engine = fake_engine(FakeRunner(), queue_limit=0)
    for _ in range(3):
        assert answer_once(engine, request("now"))[0] == "now"
        until(lambda: engine.health().active == 0)


async def test_a_bad_picture_is_refused_before_the_first_piece() -> None:
    runner = FakeRunner()
    engine = fake_engine(runner)
    async with stream(engine, request("what", images=(b"broken",))) as pieces:
        with pytest.raises(BadImage, match="The picture is broken"):
            await anext(pieces)
    assert runner.calls == []
    assert engine.health().queued == 0
    assert engine.health().ailment is None


async def test_bad_sampling_is_refused_with_the_field() -> None:
    engine = fake_engine(FakeRunner())
    with pytest.raises(Invalid) as caught:
        await collect(engine, request(max_tokens=0))
    assert caught.value.field == "max_tokens"
    with pytest.raises(Invalid, match="max_tokens is 513; expected a whole number from 1 to 512"):
        await engine.count(request(max_tokens=513))


async def test_counting_runs_nothing() -> None:
    runner = FakeRunner()
    counts = await fake_engine(runner).count(request("four", images=(b"a",)))
    assert (counts.prompt_tokens, counts.visual_tokens, len(counts.images)) == (8, 4, 1)
    assert runner.calls == []


async def test_counting_ends_with_the_engine() -> None:
    engine = fake_engine(FakeRunner())
    await asyncio.to_thread(engine.close, 1)
    with pytest.raises(Unavailable, match="The engine is stopping"):
        await engine.count(request("four"))


async def test_a_panic_while_preparing_reaches_the_reader(caplog: pytest.LogCaptureFixture) -> None:
    engine = fake_engine(FakeRunner())
    with pytest.raises(Unavailable, match="The engine failed while it worked on this request"):
        await collect(engine, request("panic"))
    assert "preparing a request failed" in caplog.text
    assert await text_of(engine, request("after")) == "after"


async def test_a_run_that_fails_is_the_failure_of_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    runner = FakeRunner()
    engine = fake_engine(runner)
    runner.fail = lambda call: RuntimeError("at 0x7f01 in /opt/lib.so") if call == "encode" else None
    with pytest.raises(Unavailable) as caught:
        await collect(engine, request("hm", images=(b"a",)))
    assert caught.value.message.startswith("The engine failed while it worked on this request.")
    assert "0x" not in caught.value.message
    assert "at 0x7f01 in /opt/lib.so" in caplog.text
    assert await text_of(engine, request("after")) == "after"
    assert engine.health().ailment is None


async def test_an_engine_that_only_fails_is_dead(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    runner = FakeRunner()
    engine = fake_engine(runner, failures_until_dead=2)
    runner.fail = lambda call: RuntimeError("broken")
    results = await asyncio.gather(*(collect(engine, request()) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, Unavailable) for result in results)
    assert len(runner.calls) == 2
    await asyncio.to_thread(until, lambda: not engine.health().alive)
    assert engine.health().ailment == "its thread has ended"
    with pytest.raises(Unavailable, match="has stopped after an internal failure and has to be started again"):
        await collect(engine, request())
    assert not engine.close(1)


@pytest.mark.parametrize("call", ["encode", "prefill", "decode"])
async def test_when_the_thread_dies_nobody_hangs(call: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    runner.fail = lambda made: SystemExit("the thread's end") if made == call else None
    tasks = [asyncio.create_task(collect(engine, request("abc", images=(b"a",)))) for _ in range(3)]
    await asyncio.to_thread(until, lambda: engine.health().queued == 2)
    open_gate(runner.gate, 99)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 3
    await asyncio.to_thread(until, lambda: not engine.health().alive)
    assert engine.health().ailment == "its thread has ended"


async def test_what_was_said_before_the_end_still_arrives(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    runner = FakeRunner()
    engine = fake_engine(runner)
    runner.fail = lambda made: RuntimeError("broken") if len(runner.calls) == 4 else None
    text = ""
    with pytest.raises(Unavailable):
        async with stream(engine, request("hello")) as pieces:
            async for piece in pieces:
                text += piece.text
    assert text == "hel"


async def test_closing_lets_answers_finish() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    running = asyncio.create_task(text_of(engine, request("running")))
    waiting = asyncio.create_task(text_of(engine, request("waiting")))
    await asyncio.to_thread(until, lambda: engine.health().active == 1 and engine.health().queued == 1)
    closing = asyncio.create_task(asyncio.to_thread(engine.close, 30))
    await asyncio.to_thread(until, lambda: engine.health().closing)
    assert engine.health().ailment == "it is closing"
    with pytest.raises(Unavailable, match="The engine is stopping"):
        await collect(engine, request("too late"))
    open_gate(runner.gate, 99)
    assert [await running, await waiting] == ["running", "waiting"]
    assert await closing is True
    assert not engine.health().alive


async def test_closing_refuses_who_takes_too_long() -> None:
    runner, preparing = FakeRunner(gated=True), FakePreparing()
    engine = fake_engine(runner, preparing)
    running = asyncio.create_task(text_of(engine, request("running")))
    await asyncio.to_thread(until, lambda: engine.health().active == 1)
    waiting = asyncio.create_task(text_of(engine, request("waiting")))
    await asyncio.to_thread(until, lambda: engine.health().queued == 1)
    preparing.gate = threading.Semaphore(0)
    decoding = asyncio.create_task(text_of(engine, request("decoding")))
    behind = asyncio.create_task(text_of(engine, request("behind")))
    await asyncio.to_thread(until, lambda: engine.health().queued == 3)
    assert await asyncio.to_thread(engine.close, 0.01) is False
    preparing.gate.release(99)
    open_gate(runner.gate)
    results = await asyncio.gather(running, waiting, decoding, behind, return_exceptions=True)
    assert [str(result) for result in results] == [
        "The engine is stopping; ask again in a moment, or ask another instance."
    ] * 4
    assert runner.calls == ["prefill"]


async def test_before_the_start_it_is_unavailable_not_silent() -> None:
    engine = fake_engine(FakeRunner(), started=False)
    with pytest.raises(Unavailable, match="has not been started yet"):
        await collect(engine, request())
    assert engine.health().ailment == "its thread has ended"
    assert engine.close(1) is True


async def test_a_stalled_engine_is_not_ready_and_an_idle_one_is() -> None:
    now = [0.0]
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner, clock=lambda: now[0], stall_after_s=30)
    now[0] = 1000
    assert engine.health().ailment is None
    task = asyncio.create_task(text_of(engine, request("ab")))
    await asyncio.to_thread(until, lambda: runner.entered == ["prefill"])
    now[0] += 29
    assert engine.health().ailment is None
    now[0] += 2
    assert engine.health().ailment == "it has not moved for 31 s"
    open_gate(runner.gate, 99)
    assert await task == "ab"
    assert engine.health().ailment is None


def test_a_reader_whose_loop_is_gone_frees_the_slot() -> None:
    runner = FakeRunner(gated=True)
    engine = fake_engine(runner)
    loop = asyncio.new_event_loop()
    pieces = cast("AsyncGenerator[Piece]", engine(request("hello")))
    task = loop.create_task(anext(pieces))  # type: ignore[arg-type]
    loop.call_soon(lambda: None)
    loop.run_until_complete(asyncio.sleep(0))
    until(lambda: engine.health().active == 1)
    loop.close()
    open_gate(runner.gate, 2)
    until(lambda: engine.health().active == 0)
    assert runner.calls.count("decode") <= 1
    del task


def test_many_threads_ask_at_once() -> None:
    engine = fake_engine(FakeRunner(slots=2), queue_limit=64)
    texts = [f"{number} " * (number % 7 + 1) for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: answer_once(engine, request(text))[0], texts))
    assert answers == texts


def seeded(engine: Engine, seed: int | None) -> str:
    return answer_once(engine, request("hello world", temperature=30.0, max_tokens=12, seed=seed))[0]


def test_a_seed_repeats_whatever_else_runs() -> None:
    alone = fake_engine(FakeRunner())
    wanted = {seed: seeded(alone, seed) for seed in range(6)}
    assert len(set(wanted.values())) == 6
    crowded = fake_engine(FakeRunner(slots=3))
    with ThreadPoolExecutor(6) as pool:
        assert dict(zip(wanted, pool.map(lambda seed: seeded(crowded, seed), wanted), strict=True)) == wanted


def test_a_token_that_cannot_be_shown_is_the_failure_of_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    runner = FakeRunner(slots=2)
    engine = fake_engine(runner)
    fine = runner._logits
    runner._logits = lambda row: fine(row)[:0]  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="The engine failed while it worked on this request"):
        answer_once(engine, request("hello"))
    runner._logits = fine  # type: ignore[method-assign]
    assert answer_once(engine, request("hello"))[0] == "hello"
    assert "attempt to get argmax of an empty sequence" in caplog.text


def test_a_model_without_numbers_is_told_to_its_reader() -> None:
    runner = FakeRunner()
    engine = fake_engine(runner)
    fine = runner._logits
    runner._logits = lambda row: fine(row) * float("nan")  # type: ignore[method-assign]
    with pytest.raises(Refusal, match="The model gave no number for any token"):
        answer_once(engine, request("hello"))
    runner._logits = fine  # type: ignore[method-assign]
    assert answer_once(engine, request("hello"))[0] == "hello"
