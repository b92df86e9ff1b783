from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

import foveola
from foveola.exchange import BadImage, Busy, Damaged, Invalid, OverBudget, Refusal, TooLarge, Unavailable, Unsupported
from foveola.serve.options import ServeOptions
from foveola.serve.service import Served
from tests.serve.fake import MODEL_HASH, FakeAnswer, laid, served

PICTURE = b"\x89PNG and so on"
FAILURES = [
    BadImage("The picture ends early; send it whole.", field="image"),
    TooLarge("Too many pixels.", field="image"),
    Unsupported("A format that is not served.", field="image"),
    Invalid("top_k is strange.", field="top_k"),
    OverBudget("The prompt is too long."),
    Unavailable("The engine is closing."),
]


async def test_a_picture_and_a_prompt_give_an_answer() -> None:
    async with laid() as table:
        response = await table.ask({"text": "Which defect?", "max_tokens": 5}, PICTURE)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    reply = response.json()
    assert reply["text"] == "划痕 in the\nmiddle"
    assert reply["model_hash"] == MODEL_HASH
    assert 0 < reply["latency_ms"] < 10_000
    assert reply["usage"]["visual_tokens"] == 16
    assert reply["id"] == response.headers["x-request-id"]
    [request] = table.answer.asked
    assert request.turns[0].images == (PICTURE,)
    assert (request.turns[0].text, request.sampling.max_tokens) == ("Which defect?", 5)


async def test_the_json_form_asks_the_same() -> None:
    async with laid() as table:
        picture = base64.b64encode(PICTURE).decode()
        response = await table.ask_json({"image": picture, "prompt": "Which defect?"})
        assert response.status_code == 200
        await table.ask_json({"image": f"data:image/png;base64,{picture}", "prompt": {"text": "Which defect?"}})
        await table.ask({"text": "Which defect?"}, PICTURE)
    turns = [request.turns for request in table.answer.asked]
    assert turns[0] == turns[1] == turns[2]


async def test_a_large_json_body_is_decoded_beside_the_loop() -> None:
    picture = bytes(range(256)) * 4000
    async with laid() as table:
        response = await table.ask_json({"image": base64.b64encode(picture).decode(), "prompt": "a"})
    assert response.status_code == 200
    assert table.answer.asked[0].turns[0].images == (picture,)


@pytest.mark.parametrize("refusal", FAILURES, ids=lambda refusal: refusal.code)
@pytest.mark.parametrize("query", ["", "?stream=1"])
async def test_a_refusal_before_the_first_piece_is_a_plain_reply(refusal: Refusal, query: str) -> None:
    async with laid(FakeAnswer(error=refusal)) as table:
        response = await table.client.post("/v1/vlm/invoke" + query, json={"prompt": "a"})
    assert response.status_code == refusal.status
    expected = {"code": refusal.code, "message": refusal.message}
    assert response.json() == {"error": expected | ({"field": refusal.field} if refusal.field else {})}
    assert response.headers["content-type"] == "application/json"


async def test_a_full_queue_says_when_to_come_back() -> None:
    async with laid(FakeAnswer(error=Busy("32 wait; come back later.", retry_after_s=2.2))) as table:
        response = await table.ask("a")
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3"


async def test_an_unknown_failure_tells_nothing_but_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    async with laid(FakeAnswer(error=RuntimeError("secret at 0xdeadbeef in /opt/x.py"))) as table:
        response = await table.ask("a", headers={"x-request-id": "job-7"})
        again = await table.client.get("/health/live")
    assert response.status_code == 500
    assert response.json() == {
        "error": {
            "code": "internal_error",
            "message": "The server failed on this request; its log tells more under id job-7.",
        }
    }
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("headers", "body", "status", "told"),
    [
        ({}, b"{}", 415, "There is no Content-Type; expected multipart/form-data or application/json"),
        ({"content-type": "text/plain"}, b"{}", 415, "The Content-Type is text/plain, which is not taken; expected"),
        (
            {"content-type": "application/x-www-form-urlencoded"},
            b"prompt=a",
            415,
            "x-www-form-urlencoded, which is not",
        ),
        ({"content-type": ";"}, b"{}", 415, "The Content-Type is no media type, which is not taken"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"{}", 415, "Content-Encoding"),
        ({"content-type": "multipart/form-data"}, b"{}", 400, "needs a boundary"),
        ({"content-type": "multipart/form-data; boundary="}, b"{}", 400, "needs a boundary"),
        (
            {"content-type": "multipart/form-data; boundary=x"},
            b"",
            400,
            "The body is empty; expected a form with the parts",
        ),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x\r\n", 400, "not well-formed"),
        ({"content-type": "application/json"}, b"", 400, 'The body is empty; expected JSON such as {"image": '),
        (
            {"content-type": "application/json"},
            b'{"prompt": {"text": "a", "\\udfff": 1}}',
            422,
            "half of a surrogate pair",
        ),
        ({"content-type": "application/json"}, b'{"\\ud800": "a"}', 422, "The name `·` holds half of a surrogate pair"),
        ({"content-type": "application/json"}, b"[1", 400, "The body is not JSON"),
        ({"content-type": "application/json; charset=utf-8"}, b'{"prompt": "\\ud800"}', 422, "surrogate"),
        ({"content-type": "application/json"}, b'{"prompt": {"text": "a", "temperature": NaN}}', 422, "`temperature`"),
        ({"content-type": "application/json"}, b'{"prompt": {"text": "a", "top_p": 1e999}}', 422, "`top_p`"),
        ({"content-type": "application/json"}, b'{"prompt": "a", "image": "http://a/b"}', 400, "fetches nothing"),
    ],
)
async def test_a_bad_body_is_refused_clearly(headers: dict[str, str], body: bytes, status: int, told: str) -> None:
    async with laid() as table:
        response = await table.client.post("/v1/vlm/invoke", content=body, headers=headers)
    assert response.status_code == status
    assert told in response.json()["error"]["message"]
    assert not table.answer.asked


async def test_too_large_is_refused_from_the_header_and_while_reading() -> None:
    options = ServeOptions(max_image_bytes=1000, max_prompt_bytes=1000)
    headers = {"content-type": "application/json"}

    async def chunks() -> Any:
        for _ in range(100):
            yield b" " * 1000

    async with laid(options=options) as table:
        announced = await table.client.post("/v1/vlm/invoke", content=b" " * 100_000, headers=headers)
        streamed = await table.client.post("/v1/vlm/invoke", content=chunks(), headers=headers)
        part = await table.ask("a", b"x" * 1001)
        packed = await table.ask_json({"prompt": "a", "image": base64.b64encode(b"x" * 1001).decode()})
    for response in (announced, streamed, part, packed):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "too_large"


@pytest.mark.parametrize("value", ["2", "yes", "", "1&stream=1"])
async def test_a_strange_stream_flag_is_refused(value: str) -> None:
    async with laid() as table:
        response = await table.client.post(f"/v1/vlm/invoke?stream={value}", json={"prompt": "a"})
    assert response.status_code == 422
    assert response.json()["error"]["field"] == "stream"


async def test_no_such_path_and_the_wrong_method_have_the_common_shape() -> None:
    async with laid() as table:
        missing = await table.client.get("/v1/nothing")
        slash = await table.client.get("/v1/models/")
        wrong = await table.client.get("/v1/vlm/invoke")
        deleted = await table.client.delete("/health/live")
    assert missing.status_code == slash.status_code == 404
    assert missing.json()["error"]["code"] == "not_found"
    assert wrong.status_code == deleted.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"] == {
        "code": "method_not_allowed",
        "message": "This path does not take GET; it takes POST.",
    }


async def test_models_version_and_health() -> None:
    async with laid() as table:
        models = (await table.client.get("/v1/models")).json()
        version = (await table.client.get("/version")).json()
        live = await table.client.get("/health/live")
        ready = await table.client.get("/health/ready")
    assert models == {
        "object": "list",
        "data": [
            {
                "id": "fake",
                "object": "model",
                "created": 1_700_000_000,
                "owned_by": "foveola",
                "model_hash": MODEL_HASH,
            }
        ],
    }
    assert version["version"] == foveola.__version__
    assert (version["model"], version["model_hash"]) == ("fake", MODEL_HASH)
    assert live.json() == ready.json() == {"status": "ok"}


async def test_while_loading_the_port_answers_but_nothing_is_ready() -> None:
    loop = asyncio.get_running_loop()
    loaded = asyncio.Event()
    answer = FakeAnswer()

    def load() -> Served:
        asyncio.run_coroutine_threadsafe(loaded.wait(), loop).result()
        return served(answer)

    async with laid(answer, load=load, ready=False) as table:
        assert (await table.client.get("/health/live")).status_code == 200
        assert (await table.client.get("/version")).json()["model"] is None
        assert (await table.client.get("/metrics")).status_code == 200
        for response in (
            await table.client.get("/health/ready"),
            await table.client.get("/v1/models"),
            await table.ask("a"),
        ):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "loading"
            assert response.headers["retry-after"] == "1"
        loaded.set()
        async with asyncio.timeout(10):
            while (await table.client.get("/health/ready")).status_code != 200:
                await asyncio.sleep(0)
        assert (await table.ask("a")).status_code == 200


async def test_a_model_that_cannot_be_loaded_is_never_ready() -> None:
    failures: list[BaseException] = []

    def load() -> Served:
        raise Damaged("vision.onnx is truncated.")

    async with laid(load=load) as table:
        ready = await table.client.get("/health/ready")
        asked = await table.ask("a")
    assert ready.status_code == asked.status_code == 503
    assert "truncated" not in ready.text
    assert not failures


async def test_metrics_are_those_of_the_model() -> None:
    answer = FakeAnswer()
    async with laid(answer, load=lambda: served(answer, metrics=lambda: b"a_total 1\n")) as table:
        response = await table.client.get("/metrics")
    assert response.text.startswith("a_total 1\n")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_documentation_page_needs_nothing_from_elsewhere() -> None:
    async with laid() as table:
        page = await table.client.get("/docs")
        redoc = await table.client.get("/redoc")
    assert page.status_code == 200
    assert "POST /v1/vlm/invoke" in page.text
    assert "max_tokens" in page.text
    for outside in ("<script", "http://fast", "https://", "cdn"):
        assert outside not in page.text
    assert redoc.status_code == 404


async def test_the_text_is_sent_as_it_is() -> None:
    async with laid() as table:
        response = await table.ask("a")
    assert "划痕".encode() in response.content
    assert json.loads(response.content)["text"].startswith("划痕")
