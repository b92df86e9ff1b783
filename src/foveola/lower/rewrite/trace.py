"""Running a graph once and keeping what every value was: shapes that are measured, and real inputs for the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from foveola.exchange import Invalid
from foveola.lower.rewrite.graph import Array

OPEN_SIZE = 64
"""What a named size is, where nobody said; the first one of an input is 1 where it is a batch."""


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session that fuses nothing by itself, one thread: the graph as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def random_inputs(values: Sequence[ir.Value], seed: int) -> dict[str, Array]:
    """Normal numbers for floats, zeros and ones for whole numbers. Open sizes of one name are equal everywhere."""
    draw = np.random.default_rng(seed)
    made = {}
    for value in values:
        assert value.name is not None and value.shape is not None and value.dtype is not None
        shape = [size if isinstance(size, int) else _open(position, value) for position, size in enumerate(value.shape)]
        kind = value.dtype.numpy()
        numbers = draw.standard_normal(shape) if kind.kind == "f" else draw.integers(0, 2, shape)
        made[value.name] = np.asarray(numbers).astype(kind)
    return made


def _open(position: int, value: ir.Value) -> int:
    assert value.shape is not None
    name = str(value.shape[position]).lower()
    return (
        1 if position == 0 and ("batch" in name or name in ("n", "none", "?") or len(value.shape) == 4) else OPEN_SIZE
    )


def trace(model: ir.Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Name of each value of the outer graph -> what it was for ``inputs``, constants included.

    Raises ``Invalid`` where onnxruntime cannot run the model.
    """
    proto = ir.to_proto(model)
    border = {value.name for value in proto.graph.output}
    inner = [name for node in proto.graph.node for name in node.output if name and name not in border]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    found: dict[str, Array] = dict(inputs)
    try:
        runner = session(proto)
        names = [output.name for output in runner.get_outputs()]
        found |= {
            name: value
            for name, value in zip(names, runner.run(names, dict(inputs)), strict=True)
            if isinstance(value, np.ndarray)
        }
    except Exception as error:  # noqa: BLE001  the runtime has one class per kind of failure, without a common one
        sizes = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items())
        raise Invalid(
            f"onnxruntime cannot run the model on {sizes} ({type(error).__name__}); give other sizes with --shape or "
            "--dim."
        ) from None
    for value in model.graph.initializers.values():
        if value.name is not None and value.const_value is not None:
            found[value.name] = value.const_value.numpy()
    return found
