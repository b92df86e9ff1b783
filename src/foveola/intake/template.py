"""A model's chat template: compiled with transformers' settings, run in jinja2's immutable sandbox."""

from __future__ import annotations

import datetime
import json
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from foveola.exchange import Damaged


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks what the assistant said, for training; here it shows what it encloses."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: object) -> jinja2.Template:
    """The chat template ``source``, ready to render. Raises Damaged where it is none."""
    if not isinstance(source, str):
        raise Damaged("model.json: chat_template is missing or not text; compile the bundle anew.")
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise Damaged(f"model.json: chat_template is no valid template: {str(error)[:200]}") from None


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
