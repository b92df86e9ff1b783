"""The portable profile: a graph of standard operators only, for TensorRT, OpenVINO, CoreML and CANN.

Every operator of ONNX Runtime's own becomes a few of the ONNX standard, and so do those that came with opset 23, which
no vendor's compiler reads yet; what is left has been in the standard since opset 13 (21 for blocks of 4-bit weights).
The names at the border stay. One thing changes: the cache is a slot of fixed length, past and present are as long as
one another, and new keys are written into it (``ScatterElements``); the ``ort`` profile can also grow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from foveola.exchange import Unsupported
from foveola.lower.operators import CONTRIB

Value = ir.Value
_FLOAT = int(ir.DataType.FLOAT)
_INT64 = int(ir.DataType.INT64)
_LOWEST = np.float32(np.finfo(np.float32).min)


class Standard:
    """Builds nodes of the ONNX standard; constants become initializers of ``graph``."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self.graph = graph
        self.name = name
        self.nodes: list[ir.Node] = []

    def op(self, kind: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Value:
        """One node; its first output."""
        return self.ops(kind, *inputs, outputs=outputs, **attributes)[0]

    def ops(self, kind: str, *inputs: Value | None, outputs: int, **attributes: Any) -> Sequence[Value]:
        """One node; all its outputs."""
        node = ir.node(kind, list(inputs), attributes, num_outputs=outputs, name=f"{self.name}.{len(self.nodes)}")
        self.nodes.append(node)
        for index, value in enumerate(node.outputs):
            value.name = f"{node.name}.{index}"
        return node.outputs

    def constant(self, content: Any, dtype: Any = np.float32) -> Value:
        """A new initializer."""
        array = np.asarray(content, dtype)
        name = f"{self.name}.c{len(self.graph.initializers)}"
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape))
        value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        self.graph.register_initializer(value)
        return value

    def whole(self, *numbers: int) -> Value:
        """Whole numbers as a vector."""
        return self.constant(numbers, np.int64)

    def size(self, value: Value, axis: int) -> Value:
        """The size of one axis as a vector of one."""
        return self.op("Shape", value, start=axis, end=axis + 1)


def to_portable(model: ir.Model) -> ir.Model:
    """Replace in place, and return ``model``. Raises ``Unsupported`` for an operator that has no entry here."""
    for node in list(model.graph):
        replace = _REPLACE.get((node.domain, node.op_type))
        if replace is None:
            if node.domain == CONTRIB:
                raise Unsupported(f"{node.op_type} has no form in standard operators; use the ort profile.")
            continue
        build = Standard(model.graph, f"{node.op_type}.{node.outputs[0].name}")
        results = replace(build, node)
        model.graph.insert_before(node, build.nodes)
        for old, new in zip(node.outputs, results, strict=False):
            _take_place(old, new)
        model.graph.remove(node, safe=True)
    model.opset_imports.pop(CONTRIB, None)
    return model


def _take_place(old: Value, new: Value | None) -> None:
    if new is None:
        return
    if old.is_graph_output():
        new.shape, new.type = old.shape, old.type
        old.name, new.name = f"{old.name}.was", old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def _number(node: ir.Node, name: str, default: float | None = None) -> Any:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def _rms(build: Standard, x: Value, weight: Value, epsilon: float) -> Value:
    mean = build.op("ReduceMean", build.op("Mul", x, x), build.whole(-1), keepdims=1)
    return build.op("Mul", build.op("Div", x, build.op("Sqrt", build.op("Add", mean, build.constant(epsilon)))), weight)


def _rms_norm(build: Standard, node: ir.Node) -> list[Value | None]:
    x, weight = _inputs(node, 2)
    return [_rms(build, x, weight, _number(node, "epsilon"))]


def _add_rms_norm(build: Standard, node: ir.Node) -> list[Value | None]:
    x, residual, weight = _inputs(node, 3)
    total = build.op("Add", x, residual)
    return [_rms(build, total, weight, _number(node, "epsilon")), None, None, total]


def _gate(build: Standard, node: ir.Node) -> list[Value | None]:
    (x,) = _inputs(node, 1)
    slope = _number(node, "alpha", 1.702)
    scaled = x if slope == 1 else build.op("Mul", x, build.constant(slope))
    return [build.op("Mul", x, build.op("Sigmoid", scaled))]


def _rotary(build: Standard, node: ir.Node) -> list[Value | None]:
    x, cos, sin = _inputs(node, 3)
    split = build.op("Reshape", x, build.whole(0, 0, _number(node, "num_heads"), -1))
    first, second = build.ops("Split", split, outputs=2, axis=-1, num_outputs=2)
    cos, sin = (build.op("Unsqueeze", one, build.whole(2)) for one in (cos, sin))
    turned = [
        build.op("Sub", build.op("Mul", first, cos), build.op("Mul", second, sin)),
        build.op("Add", build.op("Mul", second, cos), build.op("Mul", first, sin)),
    ]
    return [build.op("Reshape", build.op("Concat", *turned, axis=-1), build.op("Shape", x))]


def _heads(build: Standard, x: Value, heads: int) -> Value:
    """[B, S, N * D] -> [B, N, S, D]."""
    split = build.op("Reshape", x, build.whole(0, 0, heads, -1))
    return build.op("Transpose", split, perm=[0, 2, 1, 3])


def _joined(build: Standard, x: Value) -> Value:
    """[B, N, S, D] -> [B, S, N * D]."""
    return build.op("Reshape", build.op("Transpose", x, perm=[0, 2, 1, 3]), build.whole(0, 0, -1))


def _attention(build: Standard, node: ir.Node) -> list[Value | None]:
    heads, scale = _number(node, "num_heads"), _number(node, "scale")
    q, k, v = (_heads(build, x, heads) for x in _inputs(node, 3))
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    scores = build.op("MatMul", build.op("Mul", q, build.constant(scale)), build.op("Transpose", k, perm=[0, 1, 3, 2]))
    if bias is not None:
        scores = build.op("Add", scores, bias)
    return [_joined(build, build.op("MatMul", build.op("Softmax", scores, axis=-1), v))]


def _grouped_attention(build: Standard, node: ir.Node) -> list[Value | None]:
    """Write keys and values into the slot, attend to what is in it up to each query's own place.

    Row b's chunk begins at ``max(seqlens_k + 1 - S, 0)``: rows are padded on the right, and only a first chunk is.
    """
    heads, groups, scale = (_number(node, name) for name in ("num_heads", "kv_num_heads", "scale"))
    q, k, v, past_k, past_v, seqlens, _ = _inputs(node, 7)
    if any(value is not None for value in node.inputs[7:]):
        raise Unsupported("the portable profile has no selection of visual tokens; compile without --select-after.")
    chunk, slot = build.size(q, 1), build.size(past_k, 2)
    total = build.op("Add", build.op("Cast", seqlens, to=_INT64), build.whole(1))
    start = build.op("Max", build.op("Sub", total, chunk), build.whole(0))
    zero, one = build.constant(0, np.int64), build.constant(1, np.int64)
    steps = build.op("Range", zero, build.op("Squeeze", chunk), one)
    places = build.op("Add", build.op("Unsqueeze", start, build.whole(1)), steps)  # [B, S]
    at = build.op("Unsqueeze", places, build.whole(1, 3))  # [B, 1, S, 1]
    present = []
    for new, past in ((k, past_k), (v, past_v)):
        rows = _heads(build, new, groups)
        index = build.op("Expand", at, build.op("Shape", rows))
        present.append(build.op("ScatterElements", past, index, rows, axis=2))
    keys, values = present
    each = heads // groups
    query = build.op("Mul", _heads(build, q, heads), build.constant(scale))
    batch, size = build.size(q, 0), build.size(past_k, 3)
    number, many = build.whole(groups), build.whole(each)
    stacked = build.op("Concat", batch, number, build.op("Mul", many, chunk), size, axis=0)
    scores = build.op(
        "MatMul", build.op("Reshape", query, stacked), build.op("Transpose", keys, perm=[0, 1, 3, 2])
    )  # [B, G, each * S, T]
    apart = build.op("Concat", batch, number, many, chunk, slot, axis=0)
    keys_at = build.op("Range", zero, build.op("Squeeze", slot), one)
    seen = build.op("LessOrEqual", keys_at, build.op("Unsqueeze", places, build.whole(2)))  # [B, S, T]
    bias = build.op("Where", seen, build.constant(0), build.constant(_LOWEST))
    biased = build.op("Add", build.op("Reshape", scores, apart), build.op("Unsqueeze", bias, build.whole(1, 2)))
    shares = build.op("Reshape", build.op("Softmax", biased, axis=-1), build.op("Shape", scores))
    mixed = build.op("MatMul", shares, values)
    every = build.op("Concat", batch, build.whole(heads), chunk, size, axis=0)
    return [_joined(build, build.op("Reshape", mixed, every)), keys, values]


def _matmul_nbits(build: Standard, node: ir.Node) -> list[Value | None]:
    """Blocks of integers through DequantizeLinear. The last block of a row may be longer than the row: sliced."""
    x, packed, scales = _inputs(node, 3)
    zeros = node.inputs[3] if len(node.inputs) > 3 else None
    bits, block, inner, outer = (_number(node, name) for name in ("bits", "block_size", "K", "N"))
    blocks = -(-inner // block)
    values = _integers(_array(packed).reshape(outer, -1), bits)[:, : blocks * block]
    points = np.full((outer, blocks), 2 ** (bits - 1), np.uint8)
    if zeros is not None:
        points = _integers(_array(zeros).reshape(outer, -1), bits)[:, :blocks]
    kind = ir.DataType.UINT4 if bits == 4 else ir.DataType.UINT8
    if bits not in (4, 8):
        raise Unsupported(f"weights of {bits} bits have no form in standard operators; use int4 or int8.")
    whole = build.op(
        "DequantizeLinear",
        _narrow(build, values, kind),
        build.constant(_array(scales).reshape(outer, blocks)),
        _narrow(build, points, kind),
        axis=1,
        block_size=block,
    )
    if blocks * block > inner:
        whole = build.op("Slice", whole, build.whole(0), build.whole(inner), build.whole(1))
    product = build.op("MatMul", x, build.op("Transpose", whole, perm=[1, 0]))
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    return [product if bias is None else build.op("Add", product, bias)]


def _gather_nbits(build: Standard, node: ir.Node) -> list[Value | None]:
    """Rows first, then their numbers: the table is never widened whole."""
    packed, ids, scales, zeros = _inputs(node, 4)
    bits, block = _number(node, "bits"), _number(node, "block_size")
    table = _array(packed)
    rows = build.op("Gather", build.constant(table, np.uint8), ids, axis=0)
    points = build.op(
        "Gather", build.constant(_integers(_array(zeros), bits)[:, : _array(scales).shape[1]]), ids, axis=0
    )
    if bits == 4:
        low = build.op("BitwiseAnd", rows, build.constant(15, np.uint8))
        high = build.op("BitShift", rows, build.constant(4, np.uint8), direction="RIGHT")
        pairs = [build.op("Unsqueeze", half, build.whole(-1)) for half in (low, high)]
        rows = build.op("Concat", *pairs, axis=-1)
    numbers = build.op("Reshape", build.op("Cast", rows, to=_FLOAT), build.whole(0, 0, -1, block))
    scale = build.op("Gather", scales, ids, axis=0)
    last = build.whole(-1)
    shifted = build.op("Sub", numbers, build.op("Unsqueeze", points, last))
    return [build.op("Reshape", build.op("Mul", shifted, build.op("Unsqueeze", scale, last)), build.whole(0, 0, -1))]


def _experts(build: Standard, node: ir.Node) -> list[Value | None]:
    """All experts, weighted by zero where they were not chosen: no vendor's compiler has a sparse form."""
    x, router, gate_up, _, down = (*_inputs(node, 3), None, node.inputs[4])
    assert down is not None
    chosen = _number(node, "k")
    best, which = build.ops("TopK", router, build.whole(chosen), outputs=2, axis=-1)
    empty = build.op("Mul", router, build.constant(0))
    share = build.op("ScatterElements", empty, which, build.op("Softmax", best, axis=-1), axis=-1)  # [N, E]
    # A copy for every expert: OpenVINO does not spread what it multiplies by a constant.
    wide = build.op("Expand", x, build.op("Concat", build.size(gate_up, 0), build.whole(1, 1), axis=0))
    both = build.op("MatMul", wide, build.op("Transpose", gate_up, perm=[0, 2, 1]))  # [E, N, 2 I]
    pairs = build.op("Reshape", both, build.whole(0, 0, -1, 2))
    gate = build.op("Gather", pairs, build.constant(0, np.int64), axis=3)
    up = build.op("Gather", pairs, build.constant(1, np.int64), axis=3)
    inside = build.op("Mul", build.op("Mul", gate, build.op("Sigmoid", gate)), up)
    out = build.op("MatMul", inside, build.op("Transpose", down, perm=[0, 2, 1]))  # [E, N, H]
    weight = build.op("Unsqueeze", build.op("Transpose", share, perm=[1, 0]), build.whole(2))
    return [build.op("ReduceSum", build.op("Mul", out, weight), build.whole(0), keepdims=0)]


def _narrow(build: Standard, values: np.ndarray[Any, Any], kind: ir.DataType) -> Value:
    constant = build.constant(values, np.uint8)
    if kind == ir.DataType.UINT4:
        constant.const_value = ir.Tensor(values.astype(kind.numpy()), dtype=kind, name=constant.name)
        constant.type = ir.TensorType(kind)
    return constant


def _integers(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Bytes [R, C] -> whole numbers [R, C * 8 / bits], low half first."""
    if bits == 8:
        return packed
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(len(packed), -1)


def _array(value: Value) -> np.ndarray[Any, Any]:
    assert value.const_value is not None
    array: np.ndarray[Any, Any] = value.const_value.numpy()
    return array


def _inputs(node: ir.Node, count: int) -> list[Value]:
    found = [value for value in node.inputs[:count] if value is not None]
    assert len(found) == count
    return found


_REPLACE: dict[tuple[str, str], Callable[[Standard, ir.Node], list[Value | None]]] = {
    ("", "RMSNormalization"): _rms_norm,
    ("", "RotaryEmbedding"): _rotary,
    (CONTRIB, "SkipSimplifiedLayerNormalization"): _add_rms_norm,
    (CONTRIB, "QuickGelu"): _gate,
    (CONTRIB, "MultiHeadAttention"): _attention,
    (CONTRIB, "GroupQueryAttention"): _grouped_attention,
    (CONTRIB, "MatMulNBits"): _matmul_nbits,
    (CONTRIB, "GatherBlockQuantized"): _gather_nbits,
    (CONTRIB, "MoE"): _experts,
}
