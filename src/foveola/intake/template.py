"""A model's chat template: compiled with transformers' settings, run in jinja2's immutable sandbox."""

from __future__ import annotations

import datetime
import itertools
import json
import math
from collections.abc import Iterable
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.visitor

from foveola.exchange import Damaged

MAX_STEPS = 300_000
"""Rounds of all loops, and calls, that one rendering may take."""
MAX_SIZE = 100_000_000
"""Characters of a text that is put together, and the largest number that is computed."""


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks what the assistant said, for training; here it shows what it encloses."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Context(jinja2.runtime.Context):
    """What one rendering sees, and how many steps it has taken."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.steps = [0]

    def derived(self, locals: dict[str, Any] | None = None) -> _Context:
        made: Any = super().derived(locals)
        made.steps = self.steps
        return made  # type: ignore[no-any-return]

    def count(self, more: int) -> None:
        self.steps[0] += more
        if self.steps[0] > MAX_STEPS:
            raise jinja2.TemplateError(f"its loops and calls take more than {MAX_STEPS} steps")


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """jinja2's sandbox keeps a template from reaching out; this one also keeps it from going on for ever."""

    intercepted_binops = frozenset(("+", "*", "**"))
    context_class = _Context

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """``left operator right``, where what comes out is of a size that a prompt may have."""
        sizes = [len(side) if hasattr(side, "__len__") else abs(side) for side in (left, right)]
        whole = sum(sizes) if operator == "+" else math.prod(sizes)
        if whole > MAX_SIZE or (operator == "**" and max(sizes) > 64):
            raise jinja2.TemplateError(f"it computes {operator} beyond what a prompt needs")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, called: Any, /, *arguments: Any, **others: Any) -> Any:
        """Whatever a template calls, counted."""
        context.count(1)
        return super().call(context, called, *arguments, **others)

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        bounded: jinja2.nodes.Template = _Bounded().visit(super()._parse(source, name, filename))
        return bounded


class _Bounded(jinja2.visitor.NodeTransformer):
    """Sends whatever is looped over, and whatever is joined, through a filter that counts."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:
        if node.recursive:
            raise jinja2.TemplateSyntaxError("loops that call themselves are not run", node.lineno)
        self.generic_visit(node)
        node.iter = _filtered("_counted", node.iter)  # type: ignore[arg-type]  # jinja2 declares any node here
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _filtered("_joined", jinja2.nodes.List(node.nodes, lineno=node.lineno))


def _filtered(name: str, node: jinja2.nodes.Expr) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@jinja2.pass_context
def _counted(context: _Context, items: Iterable[Any]) -> list[Any]:
    listed = list(itertools.islice(items, MAX_STEPS + 1))
    context.count(len(listed))
    return listed


@jinja2.pass_context
def _joined(context: _Context, parts: list[Any]) -> str:
    texts = [str(part) for part in parts]
    if sum(map(len, texts)) > MAX_SIZE:
        raise jinja2.TemplateError("it joins texts beyond what a prompt needs")
    return "".join(texts)


def compile_template(source: object) -> jinja2.Template:
    """The chat template ``source``, ready to render. Raises Damaged where it is none."""
    if not isinstance(source, str):
        raise Damaged("model.json: chat_template is missing or not text; compile the bundle anew.")
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation])
    environment.filters |= {"tojson": _to_json, "_counted": _counted, "_joined": _joined}
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    del environment.globals["lipsum"]  # makes text without end in one call
    try:
        return environment.from_string(source)
    except Exception as error:  # noqa: BLE001 - blocks nested too deeply end in errors of Python's own
        said = str(error)[:200] if isinstance(error, jinja2.TemplateError) else type(error).__name__
        raise Damaged(f"model.json: chat_template is no valid template: {said}") from None


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
