"""How long one product takes on this machine: measured tables, for choosing widths and bits by time, not by counting.

One product is one node, as the compiled graphs have it: MatMul over fp32 weights, or MatMulNBits over packed ones.
Prefill and the vision tower have many rows, decoding has one; the same weights may be fast in one and slow in the
other, so that tables are kept per number of rows.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from foveola.exchange import Invalid
from foveola.weights.formats import Format, parse_storage

_CONTRIB = "com.microsoft"
_OPSET = 21


@dataclass(frozen=True, slots=True)
class Shape:
    """``x[rows, inner] · W[inner, outer]`` with W stored as ``storage`` (text, as in ``int4/32@4``)."""

    rows: int
    inner: int
    outer: int
    storage: str = "fp32"

    @property
    def key(self) -> str:
        """As one word, for JSON."""
        return f"{self.rows}x{self.inner}x{self.outer}:{self.storage}"


@dataclass
class LatencyTable:
    """Microseconds per product, measured once each. ``threads`` is what they were measured with."""

    threads: int = 1
    microseconds: dict[str, float] = field(default_factory=dict)

    def of(self, shape: Shape) -> float:
        """The time of ``shape``. Raises ``Invalid`` where it was not measured."""
        if shape.key not in self.microseconds:
            raise Invalid(f"the latency table has no entry for {shape.key}; measure it on the target.", field="latency")
        return self.microseconds[shape.key]

    def measure(self, shapes: Iterable[Shape], told: Callable[[str], None] = lambda what: None) -> LatencyTable:
        """Measure those of ``shapes`` that are missing; returns itself."""
        for shape in dict.fromkeys(shapes):
            if shape.key not in self.microseconds:
                told(shape.key)
                self.microseconds[shape.key] = time_product(shape, threads=self.threads)
        return self

    def write(self, path: Path) -> None:
        """Keep the table as JSON."""
        staged = path.with_suffix(".partial")
        staged.write_text(json.dumps({"threads": self.threads, "microseconds": self.microseconds}, indent=1) + "\n")
        os.replace(staged, path)

    @classmethod
    def read(cls, path: Path) -> LatencyTable:
        """The table in the file ``path``. Raises ``Invalid`` where it is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(int(data["threads"]), {str(k): float(v) for k, v in data["microseconds"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise Invalid(f"{path.name} is no latency table; measure one on the target.", field="latency") from None


def time_product(shape: Shape, *, threads: int = 1, least_s: float = 0.02, rounds: int = 5, seed: int = 0) -> float:
    """Microseconds of one run of the product: the lowest of ``rounds`` medians, each over at least ``least_s``.

    The lowest, since other programs on the machine only ever make it slower.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        product_graph(shape, seed=seed).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x = np.random.default_rng(seed).standard_normal((shape.rows, shape.inner)).astype(np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros((shape.rows, shape.outer), np.float32))
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    medians = []
    for _ in range(rounds):
        times: list[float] = []
        while sum(times) < least_s or len(times) < 3:
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times))
    return min(medians) * 1e6


def product_graph(shape: Shape, *, seed: int = 0) -> onnx.ModelProto:
    """A graph of one node: ``y = x · W`` over random weights in the storage asked for. Raises ``Invalid``."""
    storage = parse_storage(shape.storage, field="storage")
    rng = np.random.default_rng(seed)
    if isinstance(storage, Format) and not storage.expand:
        node, weights = _packed(shape, storage, rng)
    else:
        weight = rng.standard_normal((shape.inner, shape.outer)).astype(np.float32)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        weights = {"w": weight}
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [shape.rows, shape.inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape.rows, shape.outer])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _packed(
    shape: Shape, form: Format, rng: np.random.Generator
) -> tuple[onnx.NodeProto, Mapping[str, NDArray[np.generic]]]:
    blocks = -(-shape.inner // form.block)
    weights: dict[str, NDArray[np.generic]] = {
        "w": rng.integers(0, 256, (shape.outer, blocks, form.block * form.bits // 8), dtype=np.uint8),
        "scales": rng.random((shape.outer, blocks)).astype(np.float32),
        "zeros": rng.integers(0, 256, (shape.outer, -(-blocks * form.bits // 8)), dtype=np.uint8),
    }
    node = helper.make_node(
        "MatMulNBits",
        ["x", *weights],
        ["y"],
        domain=_CONTRIB,
        K=shape.inner,
        N=shape.outer,
        bits=form.bits,
        block_size=form.block,
        accuracy_level=form.accuracy_level,
    )
    return node, weights
