"""How long matrix products take on this machine, per storage, number of rows and threads: a table, measured once.

Every entry is a graph of one product in ONNX Runtime, over random weights of the real shape, run until a few runs have
been timed; the fastest counts, since whatever disturbs only makes it longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from foveola.lower.operators import CONTRIB, OPSET

DYNAMIC_INT8 = "dynamic int8"
"""Measured beside the storages that can be compiled: activations rounded to 8 bits as they come, weights before."""
CANDIDATES = (
    "fp32",
    DYNAMIC_INT8,
    "int8/32@4",
    "int8/128@4",
    "int8/128@load",
    "int4/32@1",
    "int4/32@4",
    "int4/64@4",
    "int4/128@4",
    "int4/32@load",
)
RUNS, MOST_S = 5, 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A matrix of ``outer`` x ``inner`` weights."""

    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class Timing:
    """``seconds`` that the product of ``rows`` rows with one matrix takes, ``bytes`` of it in memory."""

    shape: Shape
    storage: str
    rows: int
    threads: int
    seconds: float
    bytes: int


def measure_kernels(
    shapes: Iterable[Shape],
    rows: Sequence[int],
    threads: Sequence[int],
    storages: Sequence[str] = CANDIDATES,
    tell: Callable[[str], None] = lambda what: None,
) -> list[Timing]:
    """The whole table. A storage that no kernel here computes is left out."""
    table = []
    for shape in dict.fromkeys(shapes):
        for storage in storages:
            tell(f"{shape.outer} x {shape.inner} as {storage}")
            graph = _graph(shape, storage)
            for count in threads:
                session = _session(graph, count)
                if session is not None:
                    table += [
                        Timing(shape, storage, n, count, _time(session, n, shape.inner), stored_bytes(shape, storage))
                        for n in rows
                    ]
    return table


def stored_bytes(shape: Shape, storage: str) -> int:
    """Bytes in memory while it is served: what is widened at load is fp32 then."""
    weights = shape.outer * shape.inner
    if storage == DYNAMIC_INT8:
        return weights + 4 * shape.outer
    if storage in ("fp32", "fp16") or storage.endswith("@load"):
        return 4 * weights
    bits, _, rest = storage.removeprefix("int").partition("/")
    block = int(rest.partition("@")[0])
    return weights * int(bits) // 8 + 5 * (weights // block)  # a 4-byte scale and a zero point per block


def _time(session: ort.InferenceSession, rows: int, inner: int) -> float:
    x = np.random.default_rng(0).standard_normal((rows, inner)).astype(np.float32)
    session.run(None, {"x": x})
    best, spent, done = float("inf"), 0.0, 0
    while done < RUNS or (spent < 0.02 and done < 200):
        started = time.perf_counter()
        session.run(None, {"x": x})
        seconds = time.perf_counter() - started
        best, spent, done = min(best, seconds), spent + seconds, done + 1
        if spent > MOST_S and done >= 2:
            break
    return best


def _session(graph: bytes, threads: int) -> ort.InferenceSession | None:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    try:
        return ort.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - no kernel of this kind here: that is what the table then says
        return None


def _graph(shape: Shape, storage: str) -> bytes:
    random = np.random.default_rng(1)
    if storage == DYNAMIC_INT8:
        weights = random.integers(-127, 128, (shape.inner, shape.outer)).astype(np.int8)
        scale = np.full(shape.outer, 0.01, np.float32)
        return _one_node("DynamicQuantizeMatMul", CONTRIB, {}, {"w": weights, "scale": scale})
    if storage in ("fp32", "fp16") or storage.endswith("@load"):
        wide = random.standard_normal((shape.inner, shape.outer)).astype(np.float32)
        return _one_node("MatMul", "", {}, {"w": wide})
    bits_text, _, rest = storage.removeprefix("int").partition("/")
    block, level = (int(part) for part in rest.split("@"))
    bits, blocks = int(bits_text), -(-shape.inner // block)
    packed = random.integers(0, 256, (shape.outer, blocks, block * bits // 8)).astype(np.uint8)
    scales = np.full((shape.outer, blocks), 0.01, np.float32)
    zeros = np.full((shape.outer, -(-blocks * bits // 8)), 0x88 if bits == 4 else 0x80, np.uint8)
    attributes = {
        "K": shape.inner,
        "N": shape.outer,
        "bits": bits,
        "block_size": block,
        "accuracy_level": level,
    }
    return _one_node("MatMulNBits", CONTRIB, attributes, {"w": packed, "scales": scales, "zeros": zeros})


def _one_node(
    operator: str, domain: str, attributes: dict[str, int], constants: dict[str, NDArray[np.generic]]
) -> bytes:
    """A model that computes ``operator(x, constants…)``, x fp32 [rows, K]."""
    x = ir.Value(name="x", shape=ir.Shape(["rows", None]), type=ir.TensorType(ir.DataType.FLOAT))
    values = [_constant(name, array) for name, array in constants.items()]
    node = ir.node(operator, [x, *values], attributes, domain=domain)
    node.outputs[0].name = "y"
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=values, opset_imports={"": OPSET, CONTRIB: 1}, name="product"
    )
    data: bytes = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
    return data


def _constant(name: str, array: NDArray[np.generic]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    return ir.Value(name=name, const_value=tensor, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype))
