from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from foveola.exchange import BadImage, BadRequest, Invalid, Refusal, Sampling, TooLarge
from foveola.serve.wire import (
    Question,
    encode,
    event,
    parse_json,
    picture_of_text,
    question_of_json,
    reply_of,
    request_of,
)
from tests.serve.fake import PIECES, USAGE

LIMIT = 1000


def asked(prompt: Any) -> Any:
    return request_of(Question(prompt, None), "id-1")


def test_every_field_of_the_prompt_reaches_the_exchange() -> None:
    prompt = {
        "text": "Which defect?",
        "max_tokens": 7,
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 4,
        "seed": 2**64 - 1,
        "stop": ["\n", "。"],
        "visual_tokens": 128,
        "visual_prompt": "plant-7",
    }
    request = request_of(Question(prompt, b"picture"), "id-1")
    assert request.visual_tokens == 128
    assert request.visual_prompt == "plant-7"
    assert request.id == "id-1"
    assert [(turn.role, turn.text, turn.images) for turn in request.turns] == [("user", "Which defect?", (b"picture",))]
    assert request.sampling == Sampling(7, 1.0, 0.5, 4, 2**64 - 1, ("\n", "。"))


def test_a_plain_string_and_nulls_mean_the_defaults() -> None:
    assert asked("Which?").sampling == Sampling()
    assert asked({"text": "Which?", "max_tokens": None, "stop": None, "seed": None}).sampling == Sampling()
    assert asked({"text": "Which?", "stop": "x"}).sampling.stop == ("x",)
    assert asked("Which?").turns[0].images == ()


BAD_FIELDS = [
    ("max_tokens", 0),
    ("max_tokens", -5),
    ("max_tokens", 10**30),
    ("max_tokens", 1.5),
    ("max_tokens", "12"),
    ("max_tokens", True),
    ("max_tokens", float("nan")),
    ("max_tokens", float("inf")),
    ("max_tokens", [1]),
    ("visual_prompt", ""),
    ("visual_prompt", "../plant"),
    ("visual_prompt", 7),
    ("visual_tokens", 0),
    ("visual_tokens", 1.5),
    ("visual_tokens", "half"),
    ("temperature", -0.1),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("temperature", 10**400),
    ("temperature", "hot"),
    ("temperature", False),
    ("temperature", {}),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_p", float("-inf")),
    ("top_k", -1),
    ("top_k", 2**31),
    ("top_k", 3.5),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", "1"),
    ("stop", ""),
    ("stop", 3),
    ("stop", [""]),
    ("stop", ["a", 1]),
    ("stop", ["x"] * 17),
    ("stop", "x" * 257),
    ("stop", "\ud800"),
    ("text", ""),
    ("text", " \n\t"),
    ("text", None),
    ("text", 5),
    ("text", ["a"]),
    ("text", "x" * 32_769),
    ("text", "half \udfff a pair"),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=lambda value: str(value)[:20].encode("unicode_escape"))
def test_a_value_out_of_its_range_is_refused_with_the_fields_name(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        asked({"text": "Which?", field: value})
    assert caught.value.field == field
    assert f"`{field}`" in caught.value.message
    assert len(caught.value.message) < 300


def test_the_message_says_what_came_and_what_was_expected() -> None:
    with pytest.raises(Invalid, match=r"^`max_tokens` is -5; expected a whole number from 1 to 1048576, within .*\.$"):
        asked({"text": "Which?", "max_tokens": -5})
    with pytest.raises(Invalid, match=r'^`top_k` is 3 characters of text, "abc"; expected a whole number'):
        asked({"text": "Which?", "top_k": "abc"})
    with pytest.raises(Invalid, match=r'^`seed` is 1 character of text, "\u5341"; expected a whole number'):
        asked({"text": "Which?", "seed": "\u5341"})
    with pytest.raises(Invalid, match=r"^`text` is an empty list; expected text"):
        asked({"text": []})
    with pytest.raises(Invalid, match=r"^`text` is empty text; expected text of 1 to"):
        asked("")
    with pytest.raises(Invalid, match=r"^`text` is missing from `prompt`"):
        asked({"max_tokens": 3})


def test_an_unknown_field_is_refused_with_its_name() -> None:
    with pytest.raises(
        Invalid, match="`temprature` is not a field of `prompt`; there are `text`, `max_tokens`"
    ) as caught:
        asked({"text": "Which?", "temprature": 0.5})
    assert caught.value.field == "temprature"


@pytest.mark.parametrize("prompt", [None, 5, ["Which?"], True])
def test_a_prompt_of_another_kind_is_refused(prompt: Any) -> None:
    with pytest.raises(Invalid, match="^`prompt` is .*; expected an object with `text`, or a string"):
        asked(prompt)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{", "is not JSON"),
        (b"Which defect?", "is not JSON"),
        (b'{"text": "a",}', "is not JSON"),
        (b"\xff\xfe{}", "is not UTF-8"),
        (b'"\xed\xa0\x80"', "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "thousands of digits"),
    ],
)
def test_what_is_not_json_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(BadRequest, match=told) as caught:
        parse_json(body, "prompt")
    assert caught.value.field == "prompt"


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="`text` is given twice") as caught:
        parse_json(b'{"text": "a", "text": "b"}', "prompt")
    assert caught.value.field == "text"


def test_a_byte_order_mark_is_read_over() -> None:
    assert parse_json(b'\xef\xbb\xbf{"text": "a"}', "body") == {"text": "a"}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: text,
        lambda text: "data:image/png;base64," + text,
        lambda text: "DATA:;base64," + text,
        lambda text: "data:image/png;name=a.png;base64," + text,
        lambda text: "\r\n".join(text[at : at + 8] for at in range(0, len(text), 8)) + "\n",
    ],
)
def test_base64_and_data_urls_become_bytes(wrap: Any) -> None:
    picture = bytes(range(256))
    assert picture_of_text(wrap(base64.b64encode(picture).decode()), LIMIT) == picture


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("data:image/png;base64,", "is empty"),
        ("not base64!", "not valid base64"),
        ("YWJ", "not valid base64"),
        ("YQ==YQ==", "not valid base64"),
        ("图片", "not valid base64"),
        ("data:image/png,abc", "without `;base64`"),
        ("data:image/png;base64;x,YWJj", "without `;base64`"),
        ("http://127.0.0.1/a.png", "fetches nothing"),
        ("file:///etc/passwd", "fetches nothing"),
    ],
)
def test_text_that_is_no_picture_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadImage, match=told) as caught:
        picture_of_text(text, LIMIT)
    assert caught.value.field == "image"
    assert "passwd" not in caught.value.message


def test_a_picture_above_the_limit_is_refused() -> None:
    assert len(picture_of_text(base64.b64encode(bytes(LIMIT)).decode(), LIMIT)) == LIMIT
    with pytest.raises(TooLarge, match="1001 bytes; at most 1000"):
        picture_of_text(base64.b64encode(bytes(LIMIT + 1)).decode(), LIMIT)


@pytest.mark.parametrize(
    ("document", "kind", "field"),
    [
        ([], BadRequest, None),
        ("text", BadRequest, None),
        (None, BadRequest, None),
        ({}, BadRequest, "prompt"),
        ({"image": "YQ=="}, BadRequest, "prompt"),
        ({"prompt": "a", "stream": True}, Invalid, "stream"),
        ({"prompt": "a", "image": 5}, Invalid, "image"),
        ({"prompt": "a", "image": ["YQ=="]}, Invalid, "image"),
    ],
)
def test_a_json_body_of_another_shape_is_refused(document: Any, kind: type[Refusal], field: str | None) -> None:
    with pytest.raises(kind) as caught:
        question_of_json(json.dumps(document).encode(), LIMIT)
    assert caught.value.field == field


def test_a_json_body_without_a_picture_is_a_question() -> None:
    assert question_of_json(b'{"prompt": "a", "image": null}', LIMIT) == Question("a", None)
    assert question_of_json(b'{"prompt": {"text": "a"}, "image": "YQ=="}', LIMIT) == Question({"text": "a"}, b"a")


def test_the_reply_has_everything_but_the_evidence() -> None:
    reply = reply_of("id", "pits", PIECES[-1], USAGE, latency_s=0.0123456, model={"model": "m", "model_hash": "h"})
    assert reply["latency_ms"] == 12.346
    assert reply["finish_reason"] == "stop"
    assert (reply["id"], reply["text"], reply["model"], reply["model_hash"]) == ("id", "pits", "m", "h")
    assert reply["usage"]["total_tokens"] == 33
    [image] = reply["usage"]["images"]
    assert (image["original"], image["used"], image["tokens"]) == ((64, 48), (56, 56), 16)
    assert reply["usage"]["stages"]["prefill_s"] == 0.25
    assert "evidence" not in reply["usage"]


def test_an_event_is_one_line_of_data_whatever_the_text() -> None:
    assert event("delta", {"delta": "a\r\n\n划"}) == 'event: delta\ndata: {"delta":"a\\r\\n\\n划"}\n\n'.encode()


def test_half_a_surrogate_pair_is_told_as_its_escape() -> None:
    told = encode({"message": "合格 \ud800"})
    assert told == '{"message":"合格 \\ud800"}'.encode()
    assert json.loads(told) == {"message": "合格 \ud800"}
