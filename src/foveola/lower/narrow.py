"""Constants stored in few bits and widened once, when the runtime loads the graph.

ONNX Runtime folds what depends on constants only, so that a session computes, and prepacks, in fp32 as if the file
had held fp32. That is the fast way where a product has many rows (a vision tower: on CPUs without 8-bit dot products
MatMulNBits is up to twice as slow there); where it has one row (decoding), weights that stay narrow in memory are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from foveola.weights.formats import Format
from foveola.weights.packed import Packed

_SMALLEST = 256
"""Elements; below, a node costs more bytes than it saves."""
EXPANDED = "expanded"
"""Begins the name of a node that makes a constant: ``expanded <format> <number of weights> <constant>``."""


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
        half = _constant(model.graph, f"{name}.half", torch.from_numpy(narrow))
        _replace(model.graph, name, [ir.node("Cast", [half], {"to": int(ir.DataType.FLOAT)}, name=f"widen {name}")])
        saved += wide.nbytes - narrow.nbytes
    return saved


def expand_at_load(model: ir.Model, weights: Mapping[str, Packed]) -> None:
    """Replace the fp32 constants [K, N] called like ``weights`` by packed ones and the nodes that unpack them."""
    for name, packed in weights.items():
        _replace(model.graph, name, _unpacking(model.graph, name, packed))


def _unpacking(graph: ir.Graph, name: str, packed: Packed) -> list[ir.Node]:
    """``(values - zeros) * scales`` over [blocks, block, N], then [K, N]: no transposition is left for the load."""
    rows, blocks, _ = packed.values.shape
    form = packed.format
    values, nodes = _integers(graph, f"{name}.values", packed.values.permute(1, 2, 0), form)
    zeros = _constant(graph, f"{name}.zeros", packed.zero_points().t()[:, None])
    scales = _constant(graph, f"{name}.scales", packed.scales.t()[:, None])
    widened = ir.node("Cast", [zeros], {"to": int(ir.DataType.FLOAT)})
    shifted = ir.node("Sub", [values, widened.outputs[0]])
    scaled = ir.node("Mul", [shifted.outputs[0], scales])
    whole = blocks * form.block
    shape = _constant(graph, f"{name}.shape", torch.tensor([whole, rows]))
    mark = f"{EXPANDED} {form} {rows * packed.inner} {name}"
    nodes += [widened, shifted, scaled, ir.node("Reshape", [scaled.outputs[0], shape], name=mark)]
    if whole > packed.inner:
        zero = _constant(graph, f"{name}.begin", torch.tensor([0]))  # the first row, and the axis of rows
        end = _constant(graph, f"{name}.end", torch.tensor([packed.inner]))
        nodes.append(ir.node("Slice", [nodes[-1].outputs[0], zero, end, zero]))
    return nodes


def _integers(graph: ir.Graph, name: str, stored: Tensor, form: Format) -> tuple[ir.Value, list[ir.Node]]:
    """Packed integers [blocks, block * bits / 8, N] as fp32 [blocks, block, N]."""
    constant = _constant(graph, name, stored)
    nodes: list[ir.Node] = []
    if form.bits < 8:
        mask = _constant(graph, f"{name}.mask", torch.tensor(2**form.bits - 1, dtype=torch.uint8))
        after_bytes = _constant(graph, f"{name}.axis", torch.tensor([2]))
        parts = []
        for place in range(0, 8, form.bits):  # the last needs no mask, the first no shift
            part = constant
            if place:
                by = _constant(graph, f"{name}.{place}", torch.tensor(place, dtype=torch.uint8))
                nodes.append(ir.node("BitShift", [part, by], {"direction": "RIGHT"}))
                part = nodes[-1].outputs[0]
            if place + form.bits < 8:
                nodes.append(ir.node("BitwiseAnd", [part, mask]))
                part = nodes[-1].outputs[0]
            nodes.append(ir.node("Unsqueeze", [part, after_bytes]))
            parts.append(nodes[-1].outputs[0])
        joined = ir.node("Concat", parts, {"axis": 2})
        shape = _constant(graph, f"{name}.shape", torch.tensor([stored.shape[0], form.block, stored.shape[2]]))
        nodes += [joined, ir.node("Reshape", [joined.outputs[0], shape])]
        constant = nodes[-1].outputs[0]
    nodes.append(ir.node("Cast", [constant], {"to": int(ir.DataType.FLOAT)}))
    return nodes[-1].outputs[0], nodes


def _constant(graph: ir.Graph, name: str, content: Tensor) -> ir.Value:
    tensor = ir.tensor(content.contiguous().numpy(), name=name)
    value = ir.Value(name=name, const_value=tensor, shape=ir.Shape(content.shape), type=ir.TensorType(tensor.dtype))
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
