"""Labels for answers over HTTP: they make the accuracy that operators see."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request as HttpRequest

from foveola.exchange import Invalid
from foveola.serve.body import read_json
from foveola.serve.describe import failures
from foveola.serve.service import Service
from foveola.serve.wire import parse_json, shown

_EXAMPLE = '{"id": "...", "right": true}'


class Label(BaseModel):
    """Whether an answer was right: ``right``, or the ``expected`` text to compare it with; one of the two."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(max_length=128, description="the `id` of the reply")
    right: bool | None = None
    expected: str | None = Field(default=None, max_length=4096)


class Labelled(BaseModel):
    """What the label said, and the accuracy with it."""

    id: str
    right: bool
    accuracy: float
    samples: int


def add_feedback(app: FastAPI, service: Service) -> None:
    """Add the route."""
    body = {"application/json": {"schema": Label.model_json_schema()}}

    @app.post(
        "/v1/feedback",
        summary="Say whether an answer was right",
        tags=["questions"],
        responses=failures(400, 404, 408, 413, 415, 422, 503),
        openapi_extra={"requestBody": {"required": True, "content": body}},
    )
    async def feedback(http: HttpRequest) -> Labelled:
        label = label_of(bytes(await read_json(http, service.options)))
        accuracy = service.served.accuracy
        found = accuracy.label(label.id, right=label.right, expected=label.expected)
        return Labelled(id=label.id, right=found, accuracy=accuracy.rate, samples=accuracy.samples)


def label_of(body: bytes) -> Label:
    """The label in a JSON body. Raises ``BadRequest`` and ``Invalid``."""
    given = parse_json(body, "label", _EXAMPLE)
    if not isinstance(given, dict):
        raise Invalid(f"The label is {shown(given)}; expected JSON such as {_EXAMPLE}.")
    try:
        label = Label.model_validate(given, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise Invalid(
            f"`{field}`: {first['msg']}; a label has an `id` and either `right` or `expected`.", field=field
        ) from None
    if (label.right is None) == (label.expected is None):
        raise Invalid(
            "A label has either `right` (true or false) or `expected` (the right answer); send one.", field="right"
        )
    return label
