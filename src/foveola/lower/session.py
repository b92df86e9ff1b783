"""Running a graph that is still in memory, to compare it with the model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from foveola.exchange import Damaged
from foveola.lower.aligned import ALIGNMENT, constants, save_aligned

Array = NDArray[np.generic]
EXTERNAL_BYTES = 1_500_000_000
"""Above, weights go beside the graph: one protobuf message holds less than 2 GiB."""


def save(graph: ir.Model, path: Path) -> None:
    """Write ``graph`` to ``path``, constants aligned; beyond what one file may hold they go to ``<path>.data``."""
    tensors = [value.const_value for value in graph.graph.initializers.values()]
    large = sum(tensor.nbytes for tensor in tensors if tensor is not None) > EXTERNAL_BYTES
    if large:
        ir.save(graph, path, external_data=f"{path.name}.data")
    else:
        save_aligned(graph, path)
        astray = [constant.name for constant in constants(path) if constant.offset % ALIGNMENT]
        if astray:
            raise Damaged(
                f"{path.name} holds {astray[0][:80]!r} off a boundary of {ALIGNMENT} bytes. Please report it with the "
                "checkpoint's config.json."
            )


def open_session(
    graph: ir.Model, *, accuracy_level: int | None = None, threads: int | None = None
) -> ort.InferenceSession:
    """A CPU session over ``graph``, on request with another accuracy level for all of its MatMulNBits, and with this
    number of threads."""
    settings = ort.SessionOptions()
    if threads is not None:
        settings.intra_op_num_threads = threads
    nodes = [node for node in graph.graph if node.op_type == "MatMulNBits"]
    before = [node.attributes["accuracy_level"] for node in nodes]
    try:
        if accuracy_level is not None:
            for node in nodes:
                node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", accuracy_level)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "graph.onnx")
            save(graph, path)
            return ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    finally:
        for node, attribute in zip(nodes, before, strict=True):
            node.attributes["accuracy_level"] = attribute


def run(session: ort.InferenceSession, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs by name."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def run_in_place(
    session: ort.InferenceSession, inputs: Mapping[str, Array], cache: Mapping[str, Array], outputs: Sequence[str]
) -> dict[str, Array]:
    """As ``run``, with each buffer of ``cache`` as past and as present at once, written in place."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    for name, array in cache.items():
        where = ("cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        binding.bind_input(name, *where)
        binding.bind_output(name.replace("past", "present", 1), *where)
    for output in outputs:
        binding.bind_output(output)
    session.run_with_iobinding(binding)
    fresh = [value.numpy() for value in binding.get_outputs()[len(cache) :]]  # in the order of binding
    return dict(zip(outputs, fresh, strict=True))
