"""What the OpenAPI document and the documentation page say beyond what FastAPI derives from the routes."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from pydantic import TypeAdapter

from foveola.serve import chat_schema, schema

REASONS = {
    400: "Not a picture, not JSON, or not a well-formed form",
    401: "A key or a signature is missing or wrong",
    403: "This key may not, or the picture is not on the allow-list",
    404: "No such thing here",
    409: "Something else is being changed at the moment",
    408: "The body did not arrive in time",
    413: "More bytes or more pixels than are taken",
    415: "A content type or a picture format that is not taken",
    422: "A field has a value that it cannot have; `error.field` names it",
    429: "Too many requests at once; `Retry-After` says when to come back",
    500: "The server failed; its log tells more under the reply's `X-Request-Id`",
    503: "No answer now: loading, stopping or dead",
    504: "The deadline of the request, or the server's own, passed before its answer was complete",
}

_ASKED = tuple(status for status in REASONS if status != 409)  # what a question may be refused with
_REF = "#/components/schemas/"
_PLAIN_PROMPT = TypeAdapter(schema.PlainPrompt).json_schema()
_QUESTION = {"text": "What defect is on this steel surface?", "max_tokens": 32}
_PICTURE = (  # a dark scratch on a grey sheet, 56 x 56
    "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAAAAACN7WTCAAAAt0lEQVR42p3LxwHAIBADMMZh/ykYK4UUyhXb+qvUWpuiVHHeUZmlibM0cZ5R"
    "m1eU5h2V2aMwn8jPN9Lzi+z8IzmHyM0xUnOKzJwjMZeIzzXCc4vo3CM4jYhNK0LTjMi0IzCdmE8vptON2fRjMoMYzyiGM4zRjGMwk+jPLLoz"
    "jd7MozOBaE8kmhOK1sSiMcG4TzRuE47rxOMyiThPJk6TiuPk4jDJ+E82fpOO7+TjM4XYpxKbHK95AOIH5zlFTMNXAAAAAElFTkSuQmCC"
)


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses for refusals with these statuses."""
    return {status: {"model": schema.Error, "description": REASONS[status]} for status in statuses}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": _REF + name}


INVOKE: dict[str, Any] = {
    "description": (
        "A picture is optional. `?stream=1` turns the reply into server-sent events: `delta` events with "
        '`{"delta": text}`, then one `done` event with the same object as the plain reply, or one `error` event. '
        "A bad question is refused with a plain 4xx reply before the first event. Closing the connection cancels."
    ),
    "responses": {
        200: {
            "model": schema.Reply,
            "description": "The answer",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'event: delta\ndata: {"delta":"pits"}\n\nevent: done\ndata: {"text":"pits"}\n\n',
                }
            },
        },
        **failures(*_ASKED),
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "stream",
                "in": "query",
                "description": "Server-sent events instead of one JSON object",
                "schema": {"type": "string", "enum": ["0", "1", "false", "true"], "default": "0"},
            },
            {
                "name": "X-Request-Id",
                "in": "header",
                "description": "Becomes the `id` of the answer; 1 to 64 letters, digits, `.`, `_`, `-`",
                "schema": {"type": "string"},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["prompt"],
                        "additionalProperties": False,
                        "properties": {
                            "image": {"type": "string", "format": "binary", "description": "the picture's file"},
                            "prompt": {"anyOf": [_named("Prompt"), _PLAIN_PROMPT]},
                        },
                    },
                    "encoding": {"prompt": {"contentType": "application/json"}},
                },
                "application/json": {
                    "schema": _named("JsonInvoke"),
                    "examples": {
                        "object": {"value": {"image": _PICTURE, "prompt": _QUESTION}},
                        "data URL and string": {
                            "value": {"image": f"data:image/png;base64,{_PICTURE}", "prompt": "What is this?"}
                        },
                    },
                },
            },
        },
    },
}

COUNT: dict[str, Any] = {
    "description": "Takes what `/v1/vlm/invoke` takes and runs nothing: what would the pictures be shrunk to, and how "
    "much of the context would the question take.",
    "responses": {200: {"model": schema.Counted, "description": "The counts"}, **failures(*_ASKED)},
    "openapi_extra": {"requestBody": INVOKE["openapi_extra"]["requestBody"]},
}

_CHAT_QUESTION = [
    {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PICTURE}"}},
            {"type": "text", "text": "What defect is on this steel surface?"},
        ],
    }
]
CHAT: dict[str, Any] = {
    "description": "OpenAI's chat completions with pictures as data URLs. With `stream` the reply is server-sent "
    "events that end with `[DONE]`. Beyond OpenAI's there are `top_k`, `visual_tokens` and `evidence`. A missing "
    "`temperature` is 0.",
    "responses": {
        200: {
            "model": chat_schema.ChatCompletion,
            "description": "The answer",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": "data: [DONE]\n\n"}},
        },
        **{
            status: {"model": chat_schema.OpenAIError, "description": reason}
            for status, reason in {
                **{one: REASONS[one] for one in _ASKED},
                404: "There is no model of that name",
            }.items()
        },
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _named("Chat"),
                    "examples": {"a picture": {"value": {"model": "foveola-tiny", "messages": _CHAT_QUESTION}}},
                }
            },
        }
    },
}

_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
FEATURES: dict[str, Any] = {
    "description": "Between the two halves of one model (`--role vision`, `--role language`): encoded pictures in, "
    "features with the name of the weights out, both in the project's own bounded and checked binary form.",
    "responses": {200: {"description": "The features", "content": _BINARY}, **failures(*_ASKED)},
    "openapi_extra": {"requestBody": {"required": True, "content": _BINARY}},
}

METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def tidy(document: dict[str, Any]) -> dict[str, Any]:
    """Add the request's schemas, which FastAPI cannot see since the body is read by hand. Changes ``document``."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    # FastAPI announces a form of error of its own wherever a path has a parameter; no route here replies with it.
    for operations in document["paths"].values():
        for operation in operations.values():
            if "HTTPValidationError" in str(operation["responses"].get("422", "")):
                del operation["responses"]["422"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for model in (schema.JsonInvoke, schema.Prompt, schema.Delta, chat_schema.Chat):
        made = model.model_json_schema(ref_template=_REF + "{model}")
        schemas.update(made.pop("$defs", {}))
        schemas[model.__name__] = made
    return document


def page(document: dict[str, Any]) -> str:
    """The OpenAPI document as one plain page: no script, nothing from elsewhere."""
    rows = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            replies = "".join(
                f"<li><code>{escape(status)}</code> {escape(reply['description'])}</li>"
                for status, reply in operation["responses"].items()
            )
            rows.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2><p><b>{escape(operation['summary'])}.</b> "
                f"{escape(operation.get('description', ''))}</p>{_examples(operation)}<ul>{replies}</ul>"
            )
    title = f"{document['info']['title']} {document['info']['version']}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
        "code,pre{background:#8882;border-radius:4px;padding:.1em .3em}pre{overflow:auto;padding:1em}</style>"
        f"<h1>{escape(title)}</h1><p>{escape(document['info']['summary'])} The whole contract: "
        f'<a href="/openapi.json">/openapi.json</a>.</p>{"".join(rows)}'
    )


def _examples(operation: dict[str, Any]) -> str:
    if "requestBody" not in operation:
        return ""
    form = "curl -F image=@part.png -F 'prompt=" + json.dumps(_QUESTION) + "' http://127.0.0.1:8080/v1/vlm/invoke"
    fields = "".join(f"<li><code>{name}</code>: {escape(words)}</li>" for name, words in schema.EXPECTED.items())
    return f"<pre>{escape(form)}</pre><p>Fields:</p><ul>{fields}</ul><p>Replies:</p>"
