"""Two transposes in a row become one, and one that moves nothing goes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import Replacement, ints, node_name

RULE = "cancel-transposes"


def find(model: ir.Model, facts: Facts) -> Iterator[Replacement]:
    """Transposes that can go or be joined to the one before, which has no other reader."""
    for node in model.graph:
        first = node.inputs[0] if node.inputs else None
        if node_name(node) != "Transpose" or first is None:
            continue
        order = _order(node, facts)
        if order is None:
            continue
        if order == tuple(range(len(order))):
            if not node.outputs[0].is_graph_output():
                yield Replacement(RULE, (node,), node.outputs[0], (), first)
            continue
        before = first.producer()
        if before is None or node_name(before) != "Transpose" or first.is_graph_output() or len(first.uses()) > 1:
            continue
        earlier, source = _order(before, facts), before.inputs[0]
        if earlier is None or source is None:
            continue
        joined = tuple(earlier[axis] for axis in order)
        if joined != tuple(range(len(joined))):
            new = ir.Node("", "Transpose", [source], [ir.AttrInt64s("perm", joined)], num_outputs=1, name=node.name)
            yield Replacement(RULE, (before, node), node.outputs[0], (new,), new.outputs[0])
        elif not node.outputs[0].is_graph_output():
            yield Replacement(RULE, (before, node), node.outputs[0], (), source)


def _order(node: ir.Node, facts: Facts) -> tuple[int, ...] | None:
    shape = facts.shape(node.inputs[0])
    return None if shape is None else ints(node, "perm", tuple(reversed(range(len(shape)))))
