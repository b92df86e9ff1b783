"""Constants stored in few bits and widened once, when the runtime loads the graph.

ONNX Runtime folds what depends on constants only, so that a session computes, and prepacks, in fp32 as if the file
had held fp32. That is the fast way where a product has many rows (a vision tower: on CPUs without 8-bit dot products
MatMulNBits is up to twice as slow there); where it has one row (decoding), weights that stay narrow in memory are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from torch import Tensor

from foveola.lower.nbits import Packed

_SMALLEST = 256
"""Elements; below, a node costs more bytes than it saves."""
EXPANDED = "expanded"
"""Domain-free mark: a node called ``expanded <format> <count> <constant>`` makes a constant of ``count`` weights."""


def halve(model: ir.Model) -> int:
    """Replace fp32 constants by fp16 ones and a Cast where that loses nothing. Returns the bytes saved.

    Lossless by construction: whoever wants more constants halved rounds the weights before the export.
    """
    saved = 0
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.size < _SMALLEST:
            continue
        wide = tensor.numpy()
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float16)
        if not np.array_equal(narrow.astype(np.float32), wide):
            continue
        half = _constant(model.graph, f"{name}.half", narrow)
        _replace(model.graph, name, [ir.node("Cast", [half], {"to": int(ir.DataType.FLOAT)}, name=f"widen {name}")])
        saved += wide.nbytes - narrow.nbytes
    return saved


def expand_at_load(model: ir.Model, weights: Mapping[str, Packed]) -> None:
    """Replace the fp32 constants [K, N] called like ``weights`` by packed ones and the nodes that unpack them."""
    for name, packed in weights.items():
        _replace(model.graph, name, _unpacking(model.graph, name, packed))


def _unpacking(graph: ir.Graph, name: str, packed: Packed) -> list[ir.Node]:
    """``((values - zeros) * scales)`` -> [N, blocks * block] -> without padding -> transposed."""
    rows, blocks, _ = packed.values.shape
    form = packed.format
    values, unpack_values = _integers(graph, f"{name}.values", packed.values, form.bits, (rows, blocks, form.block))
    zeros, unpack_zeros = _integers(graph, f"{name}.zeros", packed.zeros, form.bits, (rows, -1))
    scales = _constant(graph, f"{name}.scales", packed.scales[..., None].numpy())
    begin, end, axis = (_constant(graph, f"{name}.{what}", np.array([n])) for what, n in _cuts(packed))
    shape = _constant(graph, f"{name}.shape", np.array([rows, blocks * form.block]))
    per_block = _constant(graph, f"{name}.last", np.array([2]))
    cut = ir.node("Slice", [zeros, begin, _constant(graph, f"{name}.blocks", np.array([blocks])), axis])
    lifted = ir.node("Unsqueeze", [cut.outputs[0], per_block])
    shifted = ir.node("Sub", [values, lifted.outputs[0]])
    scaled = ir.node("Mul", [shifted.outputs[0], scales])
    flat = ir.node("Reshape", [scaled.outputs[0], shape])
    whole = ir.node("Slice", [flat.outputs[0], begin, end, axis])
    mark = f"{EXPANDED} {form} {rows * packed.inner} {name}"
    turned = ir.node("Transpose", [whole.outputs[0]], {"perm": [1, 0]}, name=mark)
    return [*unpack_values, *unpack_zeros, cut, lifted, shifted, scaled, flat, whole, turned]


def _cuts(packed: Packed) -> tuple[tuple[str, int], ...]:
    return (("begin", 0), ("end", packed.inner), ("axis", 1))


def _integers(
    graph: ir.Graph, name: str, packed: Tensor, bits: int, shape: tuple[int, ...]
) -> tuple[ir.Value, list[ir.Node]]:
    """The integers of a packed tensor as fp32 in ``shape``."""
    stored = _constant(graph, name, packed.numpy())
    if bits == 8:
        cast = ir.node("Cast", [stored], {"to": int(ir.DataType.FLOAT)})
        return cast.outputs[0], [cast]
    low = ir.node("BitwiseAnd", [stored, _constant(graph, f"{name}.mask", np.array(15, np.uint8))])
    four = _constant(graph, f"{name}.four", np.array(4, np.uint8))
    high = ir.node("BitShift", [stored, four], {"direction": "RIGHT"})
    last = _constant(graph, f"{name}.new_axis", np.array([-1]))
    pairs = [ir.node("Unsqueeze", [half.outputs[0], last]) for half in (low, high)]
    joined = ir.node("Concat", [pair.outputs[0] for pair in pairs], {"axis": -1})
    flat = ir.node("Reshape", [joined.outputs[0], _constant(graph, f"{name}.shape", np.array(shape))])
    cast = ir.node("Cast", [flat.outputs[0]], {"to": int(ir.DataType.FLOAT)})
    return cast.outputs[0], [low, high, *pairs, joined, flat, cast]


def _constant(graph: ir.Graph, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype))
    graph.register_initializer(value)
    return value


def _replace(graph: ir.Graph, name: str, nodes: list[ir.Node]) -> None:
    """Put ``nodes`` at the head of the graph; what the last one makes takes the place of the constant ``name``."""
    value = graph.initializers[name]
    graph.insert_before(next(iter(graph)), nodes)
    made = nodes[-1].outputs[0]
    made.name = f"{name}.wide"
    value.replace_all_uses_with(made)
    del graph.initializers[name]
