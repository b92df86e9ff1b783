"""What no input decides is computed now: casts of stored weights, arithmetic on shapes that are static.

Only values of at most ``MOST_BYTES``, so that weights stored in few bits stay so.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import Replacement

RULE = "fold-constants"
MOST_BYTES = 1 << 16


def find(model: ir.Model, facts: Facts) -> Iterator[Replacement]:
    """Nodes that no input decides and whose result is read by one that an input does."""
    for node in model.graph:
        if len(node.outputs) != 1:
            continue
        (value,) = node.outputs
        name = value.name or ""
        array = facts.traced.get(name)
        if name in facts.data or array is None or array.nbytes > MOST_BYTES or value.is_graph_output():
            continue
        if array.dtype.kind not in "fiub" or value.dtype not in (None, ir.DataType.from_numpy(array.dtype)):
            continue
        if not any(output.name in facts.data for user, _ in value.uses() for output in user.outputs):
            continue
        held = ir.Value(
            name=f"{name}.folded",
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            const_value=ir.tensor(array, name=f"{name}.folded"),
        )
        fixed = tuple(one for one in node.inputs if one is not None and one.name not in facts.data)
        yield Replacement(RULE, (node,), value, (), held, constants=(held,), fixed=fixed)
