from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from foveola.exchange import BadImage, Piece, PromptUse, Request, Turn, Unavailable
from foveola.serve.answering import in_name_of
from foveola.serve.keys import Key
from foveola.serve.options import ServeOptions
from foveola.serve.refusals import Forbidden
from tests.serve.fake import MODEL_HASH, PIECES, USAGE, FakeAnswer, events, laid, served
from tests.serve.raw import Call

BODY = [b'{"prompt": "Which?"}']
JSON = {"content-type": "application/json"}


def gated(**more: object) -> FakeAnswer:
    return FakeAnswer(gate=asyncio.Semaphore(0), **more)  # type: ignore[arg-type]


async def test_events_come_as_the_pieces_do_and_end_with_the_whole_reply() -> None:
    answer = gated()
    assert answer.gate is not None
    async with laid(answer) as table:
        call = Call(table.app, BODY, query="stream=1", headers=JSON)
        await answer.begun.wait()
        assert call.sent == []
        answer.gate.release()
        await call.until(2)  # the headers and the first delta are out while the second piece is not there yet
        assert call.status == 200
        assert events(call.body.decode()) == [("delta", {"delta": "划痕"})]
        for _ in PIECES[1:]:
            answer.gate.release()
        await call.done()
    headers = dict(call.sent[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    parsed = events(call.body.decode())
    assert [name for name, _ in parsed] == ["delta", "delta", "delta", "done"]
    reply = parsed[-1][1]
    assert reply["text"] == "".join(data["delta"] for _, data in parsed[:-1]) == "划痕 in the\nmiddle"
    assert reply["model_hash"] == MODEL_HASH
    assert reply["usage"]["completion_tokens"] == 3
    assert reply["latency_ms"] > 0
    assert call.sent[-1]["more_body"] is False


async def test_a_bad_picture_is_refused_before_the_first_event() -> None:
    async with laid(FakeAnswer(error=BadImage("The picture ends early."))) as table:
        call = await Call(table.app, BODY, query="stream=1", headers=JSON).done()
    assert call.status == 400
    assert json.loads(call.body)["error"]["code"] == "bad_image"


async def test_a_refusal_in_the_middle_is_the_last_event() -> None:
    async with laid(FakeAnswer(error=Unavailable("The engine is dead."), error_at=2)) as table:
        call = await Call(table.app, BODY, query="stream=1", headers=JSON).done()
    parsed = events(call.body.decode())
    assert [name for name, _ in parsed] == ["delta", "delta", "error"]
    assert parsed[-1][1] == {"error": {"code": "unavailable", "message": "The engine is dead."}}
    assert call.sent[-1]["more_body"] is False


async def test_an_unknown_failure_in_the_middle_tells_only_an_id() -> None:
    async with laid(FakeAnswer(error=RuntimeError("secret"), error_at=1)) as table:
        call = await Call(table.app, BODY, query="stream=1", headers=JSON | {"x-request-id": "job-8"}).done()
    name, data = events(call.body.decode())[-1]
    assert name == "error"
    assert data["error"]["code"] == "internal_error"
    assert "job-8" in data["error"]["message"]
    assert b"secret" not in call.body


async def test_an_answer_without_an_end_is_not_passed_off_as_one() -> None:
    async with laid(FakeAnswer(pieces=(Piece("half"),))) as table:
        whole = await Call(table.app, BODY, headers=JSON).done()
        stream = await Call(table.app, BODY, query="stream=1", headers=JSON).done()
    assert whole.status == 503
    assert events(stream.body.decode())[-1][0] == "error"


async def test_an_empty_answer_is_an_answer() -> None:
    async with laid(FakeAnswer(pieces=(Piece("", finish="stop", usage=USAGE),))) as table:
        stream = await Call(table.app, BODY, query="stream=1", headers=JSON).done()
        whole = await Call(table.app, BODY, headers=JSON).done()
    assert [name for name, _ in events(stream.body.decode())] == ["done"]
    assert json.loads(whole.body)["text"] == ""


async def test_a_client_that_leaves_frees_the_engine_and_its_place() -> None:
    for query, pieces_seen in (("", 0), ("stream=1", 0), ("stream=1", 1)):
        answer = gated()
        assert answer.gate is not None
        async with laid(answer, ServeOptions(max_requests=1)) as table:
            call = Call(table.app, BODY, query=query, headers=JSON)
            await answer.begun.wait()
            if pieces_seen:
                answer.gate.release()
                await call.until(2)
            assert answer.running == 1
            call.leave()
            await call.done()
            assert answer.running == 0
            assert not any(message.get("more_body") is False for message in call.sent)
            table.answer.gate = None
            assert (await table.ask("a")).status_code == 200


async def test_a_client_that_leaves_while_sending_is_let_go() -> None:
    async with laid(options=ServeOptions(max_requests=1)) as table:
        for headers in (JSON, {"content-type": "multipart/form-data; boundary=x"}):
            call = Call(table.app, [b"--x\r\n"], headers=headers, complete=False)
            await asyncio.sleep(0)
            call.leave()
            await call.done()
            assert call.sent == []
        assert (await table.ask("a")).status_code == 200
    assert len(table.answer.asked) == 1


async def test_a_cancelled_server_task_cancels_the_engine() -> None:
    answer = gated()
    async with laid(answer) as table:
        call = Call(table.app, BODY, headers=JSON)
        await answer.begun.wait()
        call.task.cancel()
        await call.done()
        assert answer.running == 0


async def test_an_answer_that_takes_too_long_is_cut_off() -> None:
    options = ServeOptions(answer_timeout_s=0.01)
    answer = gated()
    async with laid(answer, options) as table:
        whole = await Call(table.app, BODY, headers=JSON).done()
        assert answer.gate is not None
        answer.gate.release()
        stream = await Call(table.app, BODY, query="stream=1", headers=JSON).done()
    assert whole.status == 504
    assert json.loads(whole.body)["error"]["code"] == "answer_timeout"
    assert events(stream.body.decode())[-1][1]["error"]["code"] == "answer_timeout"
    assert answer.running == 0


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with laid(options=ServeOptions(read_timeout_s=0.01)) as table:
        call = await Call(table.app, [b'{"prompt"'], headers=JSON, complete=False).done()
    assert call.status == 408
    assert "within 0.01 s" in json.loads(call.body)["error"]["message"]


async def test_more_requests_than_places_are_told_to_come_back() -> None:
    answer = gated()
    async with laid(answer, ServeOptions(max_requests=2)) as table:
        calls = [Call(table.app, BODY, headers=JSON) for _ in range(2)]
        async with asyncio.timeout(10):
            while answer.running < 2:
                await asyncio.sleep(0)
        third = await table.ask("a")
        assert third.status_code == 429
        assert third.headers["retry-after"] == "1"
        assert third.json()["error"]["code"] == "busy"
        assert answer.gate is not None
        for _ in range(20):
            answer.gate.release()
        for call in calls:
            assert (await call.done()).status == 200
        assert (await table.ask("a")).status_code == 200


async def test_bodies_together_are_bounded() -> None:
    answer = gated()
    options = ServeOptions(max_image_bytes=1000, max_prompt_bytes=1000, max_held_bytes=20_000)
    async with laid(answer, options) as table:
        first = Call(table.app, BODY, headers=JSON)  # without a length it may become a whole body
        await answer.begun.wait()
        assert (await table.ask_json({"prompt": "a" + " " * 2000})).status_code == 429
        assert answer.gate is not None
        for _ in range(9):
            answer.gate.release()
        await first.done()
        assert (await table.ask_json({"prompt": "a" + " " * 900})).status_code == 200


SHOWN = (Turn("user", "?", (b"picture",)),)


@pytest.mark.parametrize(
    ("own", "usual", "named", "found"),
    [
        ("", "", "", ""),
        ("", "", "a", "a"),
        ("plant-7", "", "", "plant-7"),
        ("plant-7", "", "plant-7", "plant-7"),
        ("", "house", "", "house"),
        ("plant-7", "house", "", "plant-7"),
        ("", "house", "a", "a"),
        ("plant-7", None, "", ""),  # a model that the prompt is not for
    ],
)
def test_a_picture_gets_the_visual_prompt_of_its_key_or_of_the_house(
    own: str, usual: str | None, named: str, found: str
) -> None:
    key = Key("line", b"", priority=3, visual_prompt=own)
    asked = in_name_of(key, Request("r", SHOWN, visual_prompt=named), usual)
    assert (asked.visual_prompt, asked.client, asked.priority) == (found, "line", 3)
    if not named:  # text has no picture to stand before
        assert in_name_of(key, Request("r", (Turn("user", "?"),)), usual).visual_prompt == ""


def test_without_a_key_the_house_has_a_prompt_too() -> None:
    assert in_name_of(None, Request("r", SHOWN), "house").visual_prompt == "house"
    assert in_name_of(None, Request("r", SHOWN)).visual_prompt == ""


def test_a_key_with_a_prompt_of_its_own_may_name_no_other() -> None:
    request = Request("r", SHOWN, visual_prompt="plant-8")
    with pytest.raises(Forbidden, match="This key may not use that visual prompt; leave the field out"):
        in_name_of(Key("line", b"", visual_prompt="plant-7"), request)


async def test_the_reply_tells_which_prompt_it_was() -> None:
    usage = replace(USAGE, visual_prompt=PromptUse("plant-7", "a" * 64, 16))
    async with laid(FakeAnswer(pieces=(Piece("ok", 1, finish="stop", usage=usage),))) as table:
        reply = (await table.ask({"text": "?", "visual_prompt": "plant-7"})).json()
        plain = await table.client.post(
            "/v1/chat/completions",
            json={"model": "fake", "messages": [{"role": "user", "content": "?"}], "visual_prompt": "plant-7"},
        )
    told = {"name": "plant-7", "hash": "a" * 64, "tokens": 16}
    assert reply["usage"]["visual_prompt"] == plain.json()["usage"]["visual_prompt"] == told
    assert [request.visual_prompt for request in table.answer.asked] == ["plant-7"] * 2


async def test_a_whole_answer_is_sent_before_what_made_it_is_cleared_away() -> None:
    cleared = asyncio.Event()

    async def slow_to_clear(request: Request) -> AsyncIterator[Piece]:
        yield Piece("scratches", 1, finish="stop", usage=USAGE)
        await cleared.wait()

    async with laid(load=lambda: served(slow_to_clear)) as table:
        call = Call(table.app, BODY, headers=JSON)
        await call.until(2)
        assert call.status == 200
        assert json.loads(call.body)["text"] == "scratches"
        cleared.set()
        await call.done()


async def test_a_failure_while_clearing_away_leaves_the_answer_whole() -> None:
    async def breaks_afterwards(request: Request) -> AsyncIterator[Piece]:
        yield Piece("scratches", 1, finish="stop", usage=USAGE)
        raise RuntimeError("secret")

    async with laid(load=lambda: served(breaks_afterwards)) as table:
        call = await Call(table.app, BODY, headers=JSON).done()
        again = await Call(table.app, [b"{}"], headers=JSON).done()
    assert call.status == 200
    assert json.loads(call.body)["text"] == "scratches"
    assert [message["type"] for message in call.sent] == ["http.response.start", "http.response.body"]
    assert again.status == 400  # and the place is free for the next
