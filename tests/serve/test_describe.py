"""The OpenAPI document says what the server does: checked by a validator, and by sending what it documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from foveola.exchange import BadImage
from foveola.serve.schema import EXPECTED, Prompt
from foveola.serve.wire import event
from tests.serve.fake import FakeAnswer, Table, laid

INVOKE = "/v1/vlm/invoke"


async def document_of(table: Table) -> dict[str, Any]:
    response = await table.client.get("/openapi.json")
    assert response.status_code == 200
    document: dict[str, Any] = response.json()
    return document


def check(instance: Any, name: str, document: dict[str, Any]) -> None:
    """``instance`` is what the component ``name`` of the document describes."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    Draft202012Validator(schema).validate(instance)


def accepts(instance: Any, schema: dict[str, Any], document: dict[str, Any]) -> bool:
    return bool(Draft202012Validator({**schema, "components": document["components"]}).is_valid(instance))


async def test_the_document_is_valid_openapi() -> None:
    async with laid() as table:
        document = await document_of(table)
    validate(document)
    assert set(document["paths"]) >= {
        INVOKE,
        "/v1/vlm/count",
        "/v1/chat/completions",
        "/v1/models",
        "/health/live",
        "/health/ready",
        "/version",
        "/metrics",
    }


async def test_both_forms_and_every_failure_are_documented() -> None:
    async with laid() as table:
        document = await document_of(table)
    operation = document["paths"][INVOKE]["post"]
    assert set(operation["requestBody"]["content"]) == {"multipart/form-data", "application/json"}
    statuses = {"200", "400", "401", "403", "404", "408", "413", "415", "422", "429", "500", "503", "504"}
    assert set(operation["responses"]) == statuses
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    for status, response in operation["responses"].items():
        if status != "200":
            assert response["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
    assert "HTTPValidationError" not in json.dumps(document)
    assert {parameter["name"] for parameter in operation["parameters"]} == {"stream", "X-Request-Id"}


async def test_the_documented_examples_work() -> None:
    async with laid() as table:
        document = await document_of(table)
        content = document["paths"][INVOKE]["post"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            check(example["value"], "JsonInvoke", document)
            assert (await table.ask_json(example["value"])).status_code == 200
    assert all(request.turns[0].images[0].startswith(b"\x89PNG\r\n\x1a\n") for request in table.answer.asked)


async def test_replies_are_what_the_document_says() -> None:
    async with laid() as table:
        document = await document_of(table)
        check((await table.ask("a")).json(), "Reply", document)
        check((await table.client.get("/v1/models")).json(), "ModelList", document)
        check((await table.client.get("/version")).json(), "Version", document)
        check((await table.client.get("/health/ready")).json(), "Health", document)
        check((await table.ask({"text": "a", "top_k": -1})).json(), "Error", document)
        check((await table.client.get("/nothing")).json(), "Error", document)
        check((await table.ask({"text": "a", "evidence": True})).json(), "Reply", document)
        data = event("delta", {"delta": "a"}).split(b"data: ")[1]
        check(json.loads(data), "Delta", document)
    async with laid(FakeAnswer(error=BadImage("It ends early.", field="image"))) as table:
        check((await table.ask("a")).json(), "Error", document)


QUESTIONS = [
    {"prompt": "a"},
    {"prompt": {"text": "a"}},
    {"prompt": {"text": "a", "max_tokens": 1, "temperature": 0.5, "top_p": 1, "top_k": 0, "seed": 0, "stop": ["x"]}},
    {"prompt": {"text": "a", "max_tokens": None, "stop": None}},
    {"prompt": {"text": "a", "stop": "x"}, "image": None},
    {},
    {"prompt": ""},
    {"prompt": "  "},
    {"prompt": 5},
    {"prompt": {}},
    {"prompt": {"text": "a", "max_tokens": 0}},
    {"prompt": {"text": "a", "max_tokens": "5"}},
    {"prompt": {"text": "a", "temperature": -1}},
    {"prompt": {"text": "a", "top_p": 0}},
    {"prompt": {"text": "a", "top_p": 2}},
    {"prompt": {"text": "a", "top_k": 1.5}},
    {"prompt": {"text": "a", "seed": -1}},
    {"prompt": {"text": "a", "stop": ""}},
    {"prompt": {"text": "a", "stop": [""]}},
    {"prompt": {"text": "a", "stop": ["x"] * 17}},
    {"prompt": {"text": "a", "unknown": 1}},
    {"prompt": {"text": "a", "temperature": True}},
    {"prompt": "a", "image": 5},
    {"prompt": "a", "unknown": 1},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=json.dumps)
async def test_the_server_takes_exactly_what_the_document_allows(question: dict[str, Any]) -> None:
    async with laid() as table:
        document = await document_of(table)
        response = await table.ask_json(question)
    content = document["paths"][INVOKE]["post"]["requestBody"]["content"]
    allowed = accepts(question, content["application/json"]["schema"], document)
    assert (response.status_code == 200) is allowed
    assert response.status_code in (200, 400, 422)
    if set(question) == {"prompt"}:  # the part of the form has the same rules
        form = content["multipart/form-data"]["schema"]["properties"]["prompt"]
        assert accepts(question["prompt"], form, document) is allowed


def test_every_field_of_the_prompt_has_its_words() -> None:
    assert set(Prompt.model_fields) <= set(EXPECTED)
    properties = Prompt.model_json_schema()["properties"]
    for name in Prompt.model_fields:
        assert EXPECTED[name] in json.dumps(properties[name], ensure_ascii=False)
