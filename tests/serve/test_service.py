from __future__ import annotations

import asyncio

import pytest

from foveola.exchange import Busy, Piece, Request, Turn, Unavailable
from foveola.serve.options import ServeOptions
from foveola.serve.service import Service
from tests.serve.fake import FakeAnswer, laid, served

REQUEST = Request("r", (Turn("user", "a"),))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_an_engine_that_is_silent_while_answers_are_due_is_not_ready() -> None:
    clock = Clock()
    answer = FakeAnswer(gate=asyncio.Semaphore(0))
    assert answer.gate is not None
    async with laid(answer, ServeOptions(stall_s=60), clock=clock) as table:
        clock.now += 1000
        table.service.check_ready()  # nothing is due: silence is no stall
        first = table.service.answer(table.service.served.answer, REQUEST)
        piece = asyncio.create_task(anext(first))
        await asyncio.wait_for(answer.begun.wait(), 30)
        clock.now += 59
        table.service.check_ready()
        second = table.service.answer(table.service.served.answer, REQUEST)
        waiting = asyncio.create_task(anext(second))
        await asyncio.sleep(0)
        clock.now += 2  # a newcomer does not hide that the engine is silent
        with pytest.raises(Unavailable, match="silent for 61 s while 2 answers are due"):
            table.service.check_ready()
        response = await table.client.get("/health/ready")
        assert response.status_code == 503
        assert (await table.client.get("/health/live")).status_code == 200
        answer.gate.release()
        assert isinstance(await piece, Piece)
        table.service.check_ready()  # it moved
        clock.now += 61
        with pytest.raises(Unavailable):
            table.service.check_ready()
        waiting.cancel()
        await asyncio.wait({waiting})
        await first.aclose()
        table.service.check_ready()


async def test_an_ailing_engine_is_not_ready() -> None:
    ailments: list[str | None] = [None, "its thread has ended"]
    answer = FakeAnswer()
    async with laid(answer, load=lambda: served(answer, ailment=lambda: ailments[0])) as table:
        assert (await table.client.get("/health/ready")).status_code == 200
        ailments.pop(0)
        response = await table.client.get("/health/ready")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "unavailable"
    assert "(its thread has ended)" in response.json()["error"]["message"]


async def test_a_draining_service_is_not_ready_but_finishes() -> None:
    async with laid() as table:
        table.service.draining = True
        assert (await table.client.get("/health/ready")).status_code == 503
        assert (await table.ask("a")).status_code == 200


async def test_stopping_frees_the_engine_once() -> None:
    closed: list[int] = []
    answer = FakeAnswer()
    async with laid(answer, load=lambda: served(answer, close=lambda: closed.append(1))) as table:
        assert closed == []
    assert closed == [1]
    with pytest.raises(Unavailable):
        _ = table.service.served


async def test_a_failure_to_load_is_passed_on() -> None:
    failures: list[BaseException] = []

    def load() -> None:
        raise ValueError("secret")

    service = Service(load, ServeOptions(), on_failure=failures.append)  # type: ignore[arg-type]
    service.start()
    assert service._loading is not None
    await service._loading
    assert [type(failure) for failure in failures] == [ValueError]
    with pytest.raises(Unavailable, match="no model to answer with"):
        service.check_ready()
    await service.stop()


async def test_places_and_bytes_come_back() -> None:
    service = Service(lambda: served(FakeAnswer()), ServeOptions(max_requests=2))
    most = service.options.max_held_bytes
    with service.admitted(most - 5):
        with pytest.raises(Busy, match="The 1 requests being served fill"), service.admitted(6):
            pass
        with (
            service.admitted(5),
            pytest.raises(Busy, match="2 requests are being served, as many as"),
            service.admitted(0),
        ):
            pass
    with pytest.raises(KeyError), service.admitted(most):
        raise KeyError
    with service.admitted(most):
        pass
