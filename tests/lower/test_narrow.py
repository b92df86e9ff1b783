from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import onnx_ir as ir  # noqa: E402
import onnxruntime as ort  # noqa: E402

from foveola.lower.narrow import expand_at_load, halve  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.packed import pack  # noqa: E402

pytestmark = pytest.mark.torch


def product(weight_KN: Any) -> ir.Model:
    """``y = x @ w`` with the constant w."""
    inner, outer = weight_KN.shape
    x = ir.Value(name="x", shape=ir.Shape(["rows", inner]), type=ir.TensorType(ir.DataType.FLOAT))
    constant = ir.tensor(weight_KN, name="w")
    w = ir.Value(name="w", const_value=constant, shape=ir.Shape([inner, outer]), type=ir.TensorType(constant.dtype))
    node = ir.node("MatMul", [x, w])
    y = node.outputs[0]
    y.name, y.type = "y", ir.TensorType(ir.DataType.FLOAT)
    return ir.Model(ir.Graph([x], [y], nodes=[node], initializers=[w], opset_imports={"": 23}), ir_version=10)


def opened(model: ir.Model, folder: Path) -> tuple[ort.InferenceSession, list[str]]:
    """A session, and the operators that are left of the graph after loading."""
    ir.save(model, folder / "graph.onnx")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    session = ort.InferenceSession(str(folder / "graph.onnx"), options, providers=["CPUExecutionProvider"])
    return session, [node.op_type for node in ir.load(folder / "loaded.onnx").graph]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("inner", [64, 100])
def test_packed_constants_are_unpacked_at_load_and_exactly(bits: int, inner: int, tmp_path: Path) -> None:
    weight = torch.randn(24, inner, generator=torch.Generator().manual_seed(bits))
    packed = pack(weight, Format(bits, 32, expand=True))
    model = product(packed.dequantised().t().contiguous().numpy())
    expand_at_load(model, {"w": packed})
    session, left = opened(model, tmp_path)
    x = np.random.default_rng(0).standard_normal((3, inner)).astype(np.float32)
    assert np.allclose(session.run(None, {"x": x})[0], x @ packed.dequantised().numpy().T, atol=1e-5)
    assert left == ["MatMul"]


def test_the_file_is_as_small_as_its_integers(tmp_path: Path) -> None:
    packed = pack(torch.randn(256, 256), Format(4, 32, expand=True))
    model = product(packed.dequantised().t().contiguous().numpy())
    expand_at_load(model, {"w": packed})
    halve(model)
    opened(model, tmp_path)
    assert (tmp_path / "graph.onnx").stat().st_size < packed.nbytes + 3000


def test_constants_that_16_bits_hold_are_halved_and_widened_at_load(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float16).astype(np.float32)
    model = product(weight)
    assert halve(model) == weight.nbytes // 2
    session, left = opened(model, tmp_path)
    x = np.eye(64, dtype=np.float32)
    assert np.array_equal(session.run(None, {"x": x})[0], weight)
    assert left == ["MatMul"]


@pytest.mark.parametrize("value", [1.0001, 1e6, 1e-9])
def test_a_single_value_that_16_bits_do_not_hold_keeps_the_constant(value: float) -> None:
    weight = np.ones((64, 32), np.float32)
    weight[5, 5] = value
    assert halve(product(weight)) == 0
