"""OpenAI's form: as the official client sends and reads it, and what is refused, in OpenAI's form again."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from foveola.exchange import BadImage, Busy, Invalid, Piece, Refusal, TokenLogprob, Unavailable
from foveola.serve.chat_schema import CHAT_EXPECTED, Chat
from foveola.serve.openai import chat_of, request_of_chat
from foveola.serve.service import Served
from tests.serve.fake import MODEL_HASH, USAGE, FakeAnswer, Table, laid, served

CHAT = "/v1/chat/completions"
PICTURES = [b"\x89PNG one", b"\x89PNG two", b"\xff\xd8 three"]
URLS = ["data:image/png;base64," + base64.b64encode(data).decode() for data in PICTURES]
QUESTION: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Which defect?"}]}
WITH_LOGPROBS = (
    Piece("划", 2, -0.5, logprobs=(TokenLogprob("划".encode()[:2], -0.4), TokenLogprob("划".encode()[2:], -0.1))),
    Piece("", 1, -0.2, "stop", USAGE, (TokenLogprob(b"", -0.2, ((b"", -0.2), (b"x", -2.0))),)),
)


def picture(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": url}


def asked(messages: list[dict[str, Any]], **fields: Any) -> Any:
    chat = chat_of(json.dumps({"model": "m", "messages": messages, **fields}).encode())
    return request_of_chat(chat, "id-1", 1000)


@asynccontextmanager
async def official(table: Table) -> AsyncIterator[Any]:
    """OpenAI's own client, talking to the application in this process."""
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    httpx2 = pytest.importorskip("httpx2", reason="OpenAI's client uses another HTTP library")
    transport = httpx2.ASGITransport(app=table.app, raise_app_exceptions=False)
    async with openai.AsyncOpenAI(
        api_key="any",
        base_url="http://foveola/v1",
        http_client=httpx2.AsyncClient(transport=transport),
        max_retries=0,
    ) as client:
        yield client


# --- the official client ----------------------------------------------------------------------------------------------


async def test_the_official_client_gets_an_answer() -> None:
    async with laid() as table, official(table) as client:
        content = [{"type": "text", "text": "Which defect?"}, picture({"url": URLS[0], "detail": "high"})]
        completion = await client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": content}], max_tokens=5, seed=3, stop=["\n\n"]
        )
        models = await client.models.list()
    assert completion.choices[0].message.content == "划痕 in the\nmiddle"
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.prompt_tokens + completion.usage.completion_tokens == completion.usage.total_tokens == 33
    assert completion.system_fingerprint == f"fp_{MODEL_HASH[:12]}"
    assert completion.id.startswith("chatcmpl-")
    assert [model.id for model in models.data] == ["fake"]
    [request] = table.answer.asked
    assert request.turns[0].images == (PICTURES[0],)
    assert request.turns[0].parts == ("Which defect?", 0)
    assert (request.sampling.max_tokens, request.sampling.seed, request.sampling.stop) == (5, 3, ("\n\n",))


async def test_the_official_client_reads_a_stream() -> None:
    async with laid() as table, official(table) as client:
        stream = await client.chat.completions.create(
            **QUESTION, stream=True, stream_options={"include_usage": True}, temperature=0.5
        )
        chunks = [chunk async for chunk in stream]
    told = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(choice.delta.content or "" for choice in told) == "划痕 in the\nmiddle"
    assert told[0].delta.role == "assistant"
    assert [choice.finish_reason for choice in told] == [None, None, None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 3
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_official_client_reads_log_probabilities() -> None:
    async with laid(FakeAnswer(pieces=WITH_LOGPROBS)) as table, official(table) as client:
        completion = await client.chat.completions.create(**QUESTION, logprobs=True, top_logprobs=2)
        stream = await client.chat.completions.create(**QUESTION, logprobs=True, stream=True)
        streamed = [one async for chunk in stream for one in (chunk.choices[0].logprobs or _nothing()).content]
    content = completion.choices[0].logprobs.content
    assert b"".join(bytes(one.bytes) for one in content).decode() == "划"
    assert [one.logprob for one in content] == [-0.4, -0.1, -0.2]
    assert [(one.token, one.logprob) for one in content[2].top_logprobs] == [("", -0.2), ("x", -2.0)]
    assert [one.bytes for one in streamed] == [one.bytes for one in content]
    assert [request.sampling.logprobs for request in table.answer.asked] == [2, 0]


def _nothing() -> Any:
    class Nothing:
        content: tuple[Any, ...] = ()

    return Nothing()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadImage("It ends early.", field="image"), "BadRequestError"),
        (Invalid("`top_k` is strange.", field="top_k"), "UnprocessableEntityError"),
        (Busy("Full.", retry_after_s=3), "RateLimitError"),
        (Unavailable("Dead."), "InternalServerError"),
        (ValueError("secret"), "InternalServerError"),
    ],
)
async def test_the_official_client_understands_refusals(error: Exception, kind: str) -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    async with laid(FakeAnswer(error=error)) as table, official(table) as client:
        for stream in (False, True):
            with pytest.raises(getattr(openai, kind)) as caught:
                await client.chat.completions.create(**QUESTION, stream=stream)
            assert "secret" not in str(caught.value)
            if isinstance(error, Refusal):
                assert caught.value.code == error.code
                assert caught.value.param == error.field
                assert error.message in str(caught.value)


async def test_the_official_client_understands_a_stream_that_breaks() -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    broken = FakeAnswer(error=Unavailable("The engine is dead."), error_at=2)
    async with laid(broken) as table, official(table) as client:
        stream = await client.chat.completions.create(**QUESTION, stream=True)
        got = []
        with pytest.raises(openai.APIError, match="The engine is dead."):
            async for chunk in stream:
                got.append(chunk.choices[0].delta.content)
    assert got == ["划痕", " in the\n"]


async def test_a_model_that_is_not_here() -> None:
    async with laid() as table:
        response = await table.client.post(CHAT, json={**QUESTION, "model": "gpt-4o"})
    assert response.status_code == 404
    assert response.json()["error"] == {
        "message": "There is no model of that name here; there is fake.",
        "type": "not_found_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_one_of_several_models_is_asked_by_its_name() -> None:
    first, second = FakeAnswer(), FakeAnswer(pieces=(Piece("other", 1, finish="stop", usage=USAGE),))

    def load() -> Served:
        return served(first, others={"second": second})

    async with laid(first, load=load) as table:
        reply = (await table.client.post(CHAT, json={**QUESTION, "model": "second"})).json()
        models = (await table.client.get("/v1/models")).json()
    assert reply["choices"][0]["message"]["content"] == "other"
    assert reply["model"] == "second"
    assert [model["id"] for model in models["data"]] == ["fake", "second"]
    assert first.asked == []


# --- the wire ---------------------------------------------------------------------------------------------------------


async def test_one_model_is_looked_up_by_its_name() -> None:
    async with laid() as table:
        found = await table.client.get("/v1/models/fake")
        listed = (await table.client.get("/v1/models")).json()["data"]
        missing = await table.client.get("/v1/models/gpt-7")
    assert found.json() == listed[0]
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert missing.json()["error"]["message"] == "There is no model of that name here; there is fake."


async def test_a_stream_ends_with_done() -> None:
    async with laid() as table:
        response = await table.client.post(CHAT, json={**QUESTION, "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = response.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(line.startswith("data: {") for line in lines[:-2])
    assert "usage" not in response.text


async def test_replies_are_what_the_document_says() -> None:
    from tests.serve.test_describe import check, document_of

    async with laid(FakeAnswer(pieces=WITH_LOGPROBS)) as table:
        document = await document_of(table)
        for more in ({}, {"logprobs": True, "evidence": True}):
            check((await table.client.post(CHAT, json={**QUESTION, **more})).json(), "ChatCompletion", document)
        check((await table.client.post(CHAT, json={"model": "fake"})).json(), "OpenAIError", document)
        [example] = document["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]["examples"].values()
        check(example["value"], "Chat", document)
        assert (await table.client.post(CHAT, json={**example["value"], "model": "fake"})).status_code == 200


def test_several_pictures_keep_their_order_among_the_texts() -> None:
    content = [
        picture(URLS[0]),
        {"type": "text", "text": "before"},
        picture({"url": URLS[1]}),
        {"type": "text", "text": ""},
        picture({"url": URLS[2], "detail": "auto"}),
        {"type": "text", "text": "behind"},
    ]
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [picture(URLS[0])]},
        {"role": "assistant", "content": "A scratch.", "refusal": None, "tool_calls": None},
    ]
    request = asked([*history, {"role": "user", "content": content}])
    assert [turn.role for turn in request.turns] == ["system", "user", "assistant", "user"]
    last = request.turns[-1]
    assert last.images == tuple(PICTURES)
    assert last.parts == (0, "before", 1, 2, "behind")
    assert last.text == "beforebehind"
    assert request.turns[1].images == (PICTURES[0],)


BAD = [
    ({}, "messages", 422),
    ({"messages": []}, "messages", 422),
    ({"messages": [{"role": "user"}]}, "messages[0].content", 422),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role", 422),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", 422),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", 422),
    ({"messages": [{"role": "user", "content": " "}]}, "messages[0].content", 422),
    ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "messages[1].role", 422),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type", 422),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]", 422),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text", 422),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", 422),
    (
        {"messages": [{"role": "user", "content": [picture({"url": URLS[0], "detail": "huge"})]}]},
        "messages[0].content[0].image_url.detail",
        422,
    ),
    (
        {"messages": [{"role": "user", "content": [picture("https://example.org/a.png")]}]},
        "messages[0].content[0].image_url",
        400,
    ),
    (
        {"messages": [{"role": "user", "content": [picture("file:///etc/passwd")]}]},
        "messages[0].content[0].image_url",
        400,
    ),
    (
        {"messages": [{"role": "user", "content": [picture("data:image/png,abc")]}]},
        "messages[0].content[0].image_url",
        400,
    ),
    (
        {"messages": [{"role": "system", "content": [picture(URLS[0])]}, *QUESTION["messages"]]},
        "messages[0].content[0]",
        422,
    ),
    ({**QUESTION, "max_tokens": -1}, "max_tokens", 422),
    ({**QUESTION, "max_tokens": 10**30}, "max_tokens", 422),
    ({**QUESTION, "max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens", 422),
    ({**QUESTION, "temperature": "hot"}, "temperature", 422),
    ({**QUESTION, "n": 2}, "n", 422),
    ({**QUESTION, "stop": ["x"] * 17}, "stop", 422),
    ({**QUESTION, "stop": ["x", 5]}, "stop", 422),
    ({**QUESTION, "top_logprobs": 3}, "top_logprobs", 422),
    ({**QUESTION, "logprobs": True, "top_logprobs": 21}, "top_logprobs", 422),
    ({**QUESTION, "stream_options": {"include_usage": True}}, "stream_options", 422),
    ({**QUESTION, "presence_penalty": 0.5}, "presence_penalty", 422),
    ({**QUESTION, "logit_bias": {"5": 1}}, "logit_bias", 422),
    ({**QUESTION, "tools": [{}]}, "tools", 422),
    ({**QUESTION, "response_format": {"type": "json_object"}}, "response_format.type", 422),
    ({**QUESTION, "functions": []}, "functions", 422),
    ({**QUESTION, "temperature": float("nan")}, "temperature", 422),
]


@pytest.mark.parametrize(
    ("document", "param", "status"), BAD, ids=[f"{param} {at}" for at, (_, param, _s) in enumerate(BAD)]
)
async def test_what_cannot_be_is_refused_with_its_place(document: dict[str, Any], param: str, status: int) -> None:
    body = json.dumps({"model": "fake", **document}).encode()
    async with laid() as table:
        response = await table.client.post(CHAT, content=body, headers={"content-type": "application/json"})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    hints = ("expected", "send", "set it", "there are", "only the user")
    assert any(hint in error["message"] for hint in hints)
    assert table.answer.asked == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"response_format": {"type": "json_object"}},
            '11 characters of text, "json_object"; expected `text`: answers',
        ),
        ({"messages": ["hi"]}, '`messages[0]` is 2 characters of text, "hi"; expected an object.'),
        ({"messages": [{"role": "user", "content": [""]}]}, "`messages[0].content[0]` is empty text; expected an obj"),
        ({"messages": []}, "`messages` is an empty list; expected a list of 1 to 128 messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 5}]}]}, "a base64 data URL"),
        ({"\udfff": 1}, "The name `·` holds half of a surrogate pair"),
        ({"metadata": {"\ud800": 1}}, "The name `·` holds half of a surrogate pair"),
    ],
)
async def test_the_words_fit_the_place(change: dict[str, Any], told: str) -> None:
    async with laid() as table:
        response = await table.client.post(
            CHAT, content=json.dumps({**QUESTION, **change}), headers={"content-type": "application/json"}
        )
    assert response.status_code == 422
    assert told in response.json()["error"]["message"]


async def test_what_is_no_json_is_told_with_an_example_of_a_chat() -> None:
    async with laid() as table:
        response = await table.client.post(CHAT, content=b"{", headers={"content-type": "application/json"})
    assert 'expected JSON such as {"model": "...", "messages": ' in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "application/json"}, b"{", 400),
        ({"content-type": "application/json"}, b"[1]", 422),
        ({"content-type": "text/plain"}, b"{}", 415),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x--", 415),
        ({"content-type": "application/json", "content-length": "99000000"}, b"", 413),
        ({}, b"{}", 415),
    ],
)
async def test_the_form_of_the_body(headers: dict[str, str], body: bytes, status: int) -> None:
    async with laid() as table:
        response = await table.client.post(CHAT, content=body, headers=headers)
        wrong_verb = await table.client.get(CHAT)
        nothing = await table.client.post("/v1/chat/nothing")
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert (wrong_verb.status_code, wrong_verb.json()["error"]["code"]) == (405, "method_not_allowed")
    assert nothing.json()["error"]["type"] == "not_found_error"


async def test_fields_that_mean_nothing_here_are_left_alone() -> None:
    async with laid() as table:
        idle = {"user": "u", "metadata": {"a": "b"}, "store": False, "tools": [], "logit_bias": {}, "n": 1}
        neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "response_format": {"type": "text"}}
        response = await table.client.post(CHAT, json={**QUESTION, **idle, **neutral})
    assert response.status_code == 200, response.text


async def test_a_large_body_is_decoded_beside_the_loop() -> None:
    data = bytes(range(256)) * 4000
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    async with laid() as table:
        body = {"model": "fake", "messages": [{"role": "user", "content": [picture(url)]}]}
        response = await table.client.post(CHAT, json=body)
    assert response.status_code == 200
    assert table.answer.asked[0].turns[0].images == (data,)


def test_every_field_has_its_words() -> None:
    told = json.dumps(Chat.model_json_schema(), ensure_ascii=False)
    for name in ("messages", "logprobs", "stream_options", "n"):
        assert json.dumps(CHAT_EXPECTED[name], ensure_ascii=False)[1:-1] in told


async def test_a_deadline_of_the_clients_own() -> None:
    import asyncio

    async with laid(FakeAnswer(gate=asyncio.Semaphore(0))) as table:
        late = await table.client.post(CHAT, json=QUESTION, headers={"x-timeout-s": "0.01"})
        bad = [
            await table.client.post(CHAT, json=QUESTION, headers={"x-timeout-s": bad}) for bad in ("0", "nan", "soon")
        ]
        await table.answer.left.wait()
    assert (late.status_code, late.json()["error"]["code"]) == (504, "answer_timeout")
    assert "within 0.01 s" in late.json()["error"]["message"]
    assert [response.status_code for response in bad] == [422] * 3
    assert bad[0].json()["error"]["param"] == "X-Timeout-S"
    assert isinstance(late, httpx.Response)


@pytest.mark.parametrize(
    ("details", "selects", "tokens"),
    [
        (("low", "low"), True, 64),
        (("low", "auto"), True, None),
        (("low", None), True, None),
        ((), True, None),
        (("low", "low"), False, None),
    ],
)
async def test_low_detail_is_fewer_tokens_where_the_model_can(
    details: tuple[str | None, ...], selects: bool, tokens: int | None
) -> None:
    answer = FakeAnswer()
    content = [picture({"url": URLS[0], "detail": detail}) for detail in details] + [{"type": "text", "text": "?"}]
    async with laid(answer, load=lambda: served(answer, selects=selects)) as table:
        body = {"model": "fake", "messages": [{"role": "user", "content": content}]}
        assert (await table.client.post(CHAT, json=body)).status_code == 200
    assert answer.asked[0].visual_tokens == tokens


async def test_a_template_takes_no_arguments_from_a_client() -> None:
    async with laid() as table:
        for name in ("chat_template", "chat_template_kwargs", "add_generation_prompt"):
            response = await table.client.post(CHAT, json={**QUESTION, name: "{% for x in range(10**9) %}{% endfor %}"})
            assert (response.status_code, response.json()["error"]["param"]) == (422, name)
    assert table.answer.asked == []
