from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from foveola.guard.protobuf import without_shapes

onnx = pytest.importorskip("onnx", reason="the workshop is not installed")


def test_a_fixed_size_becomes_a_free_one() -> None:
    from onnx import TensorProto, helper

    fixed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [10, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", fixed[:1], fixed[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with pytest.raises(Exception, match="invalid dimensions"):
        ort.InferenceSession(model).run(None, {"x": np.ones((2, 5), np.float32)})
    [out] = ort.InferenceSession(without_shapes(model)).run(None, {"x": np.ones((2, 5), np.float32)})
    assert out.tolist() == (-np.ones((2, 5))).tolist()


@pytest.mark.parametrize("data", [b"\x3a\xff", b"\xff" * 12, b"\x3a\x05ab", b"\x3b"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        without_shapes(data)
