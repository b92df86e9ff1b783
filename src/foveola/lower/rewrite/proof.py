"""The proof of one replacement: old and new nodes as two small models, run on the same random and real inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from foveola.lower.rewrite.graph import Array, Replacement, constant
from foveola.lower.rewrite.trace import session

TOLERANCE = 1e-6
"""Largest difference over largest value, in fp32."""
_ROOM = {np.dtype(np.float16): 2e-3, np.dtype(np.float32): TOLERANCE, np.dtype(np.float64): TOLERANCE}
DRAWS = 2


@dataclass(frozen=True, slots=True)
class Proof:
    """How far old and new differ at most: ``relative`` to the largest value, over ``runs`` runs."""

    relative: float
    allowed: float
    runs: int

    @property
    def holds(self) -> bool:
        """Whether that is little enough."""
        return self.relative <= self.allowed


def difference(old: Array, new: Array) -> float:
    """Largest difference over the largest value of ``old``; infinite where shapes, types or finiteness differ."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return math.inf
    if old.dtype.kind != "f":
        return 0.0 if np.array_equal(old, new) else math.inf
    a, b = old.astype(np.float64), new.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    gap = float(np.abs(a[finite] - b[finite]).max())
    return gap / float(np.abs(a[finite]).max()) if gap else 0.0


def prove(model: ir.Model, replacement: Replacement, traced: Mapping[str, Array], seed: int = 0) -> Proof:
    """Run both on the values that the graph had, and on random ones of the same shapes.

    Float inputs are drawn; whole numbers, booleans and weights are those of the graph. What cannot be run proves
    nothing: the difference is infinite.
    """
    try:
        return _run_both(model, replacement, traced, seed)
    except Exception:  # noqa: BLE001  the runtime has one class per kind of failure, without a common one
        return Proof(math.inf, TOLERANCE, 0)


def _run_both(model: ir.Model, replacement: Replacement, traced: Mapping[str, Array], seed: int) -> Proof:
    outside = _outside(replacement.old)
    own: dict[str, Array] = {
        value.name or "": value.const_value.numpy() for value in replacement.constants if value.const_value is not None
    }
    old = _small(model, replacement.old, replacement.was, outside, traced, None)
    held = [*outside, *replacement.constants]
    new = _small(model, replacement.new, replacement.now, held, {**traced, **own}, replacement.function)
    draw = np.random.default_rng(seed)
    before, after = session(old), session(new)
    worst, allowed = 0.0, TOLERANCE
    for run in range(DRAWS + 1):
        feeds: dict[str, Array] = {}
        for value in outside:
            name = value.name or ""
            array = traced[name]
            drawn = run and array.dtype.kind == "f" and constant(value) is None and value not in replacement.fixed
            feeds[name] = draw.standard_normal(array.shape).astype(array.dtype) if drawn else array
        (was,) = before.run(None, feeds)
        (now,) = after.run(None, {**feeds, **own})
        worst = max(worst, difference(was, now))
        allowed = _ROOM.get(was.dtype, TOLERANCE)
    return Proof(worst, allowed, DRAWS + 1)


def _outside(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """What the nodes read and none of them makes, each once."""
    made = {id(value) for node in nodes for value in node.outputs}
    read = {id(value): value for node in nodes for value in node.inputs if value is not None}
    return [value for key, value in read.items() if key not in made]


def copied(nodes: Sequence[ir.Node], known: dict[int, ir.Value]) -> list[ir.Node]:
    """The same nodes on other values: ``known`` maps the id of a value to its double, and is added to."""
    doubles = []
    for node in nodes:
        inputs = [None if value is None else known[id(value)] for value in node.inputs]
        double = ir.Node(
            node.domain, node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs),
            overload=node.overload, name=node.name,
        )  # fmt: skip
        for value, twin in zip(node.outputs, double.outputs, strict=True):
            twin.name = value.name
            known[id(value)] = twin
        doubles.append(double)
    return doubles


def _small(
    model: ir.Model,
    nodes: Sequence[ir.Node],
    result: ir.Value,
    outside: Sequence[ir.Value],
    traced: Mapping[str, Array],
    function: ir.Function | None,
) -> onnx.ModelProto:
    known: dict[int, ir.Value] = {}
    inputs = []
    for value in outside:
        array = traced[value.name or ""]
        kind = value.dtype or ir.DataType.from_numpy(array.dtype)
        known[id(value)] = ir.Value(name=value.name, shape=ir.Shape(array.shape), type=ir.TensorType(kind))
        inputs.append(known[id(value)])
    doubles = copied(nodes, known)
    kept = known[id(result)]
    last = ir.Node("", "Identity", [kept], num_outputs=1)
    last.outputs[0].name = "result"
    opsets = dict(model.graph.opset_imports)
    if function is not None:
        opsets[function.domain] = 1
    graph = ir.Graph(inputs, last.outputs, nodes=[*doubles, last], opset_imports=opsets, name="proof")
    small = ir.to_proto(
        ir.Model(graph, ir_version=model.ir_version, functions=[function] if function is not None else [])
    )
    small.graph.output[0].ClearField("type")
    return small
