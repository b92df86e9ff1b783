"""Operators that change nothing: Identity, Dropout at inference, a cast to the same type, + 0, * 1, pads of 0."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import Replacement, constant, node_name

RULE = "drop-noop"


def find(model: ir.Model, facts: Facts) -> Iterator[Replacement]:
    """Each such node whose result is no output of the graph, and whose input stands for it."""
    for node in model.graph:
        if not node.outputs or node.outputs[0].is_graph_output():
            continue
        kept = _kept(node, facts)
        unread = all(not value.uses() and not value.is_graph_output() for value in node.outputs[1:])
        if kept is not None and unread:
            yield Replacement(RULE, (node,), node.outputs[0], (), kept)


def _kept(node: ir.Node, facts: Facts) -> ir.Value | None:
    first = node.inputs[0] if node.inputs else None
    if first is None or first.name not in facts.traced:
        return None
    name = node_name(node)
    same = facts.traced.get(node.outputs[0].name or "")
    if name == "Identity" or (name == "Dropout" and len(node.inputs) < 3):
        return first
    if name == "Cast" and same is not None and same.dtype == facts.traced[first.name or ""].dtype:
        return first
    if name == "Pad" and len(node.inputs) > 1 and _is(node.inputs[1], 0):
        return first
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}.get(name)
    if neutral is not None:
        pairs = list(zip(node.inputs, node.inputs[::-1], strict=True))[: 2 if name in ("Add", "Mul") else 1]
        for value, other in pairs:
            if value is not None and _is(other, neutral) and facts.shape(value) == facts.shape(node.outputs[0]):
                alone = constant(other)
                if alone is not None and alone.size == 1 and alone.ndim <= len(facts.shape(value) or ()):
                    return value
    return None


def _is(value: ir.Value | None, number: float) -> bool:
    array = constant(value)
    return array is not None and array.size > 0 and bool((array == number).all())
