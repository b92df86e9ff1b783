"""The head of a graph cut in two: the kept tokens' logits are those of the whole head, whatever it is stored in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from foveola.exchange import Invalid, Unsupported

ir = pytest.importorskip("onnx_ir", reason="the workshop is not installed")

from foveola.lower.trim import Answered, kept_tokens, least_probability, split, trim  # noqa: E402
from tests.engine.test_draft import copied  # noqa: E402

VOCABULARY, WIDTH, BLOCK = 48, 32, 16
KEPT = np.array([0, 3, 4, 17, 47])


def decoder(form: str) -> onnx.ModelProto:
    """``x + x`` and a head stored as ``form``."""
    random = np.random.default_rng(0)
    nodes = [helper.make_node("Add", ["x", "x"], ["state"])]
    constants: dict[str, np.ndarray] = {}
    if form == "dense":
        constants = {
            "head.weight": random.standard_normal((WIDTH, VOCABULARY)).astype(np.float32),
            "head.bias": random.standard_normal(VOCABULARY).astype(np.float32),
        }
        nodes += [
            helper.make_node("MatMul", ["state", "head.weight"], ["product"]),
            helper.make_node("Add", ["product", "head.bias"], ["logits"]),
        ]
    elif form == "packed":
        constants = {
            "head.values": random.integers(0, 255, (VOCABULARY, WIDTH // BLOCK, BLOCK // 2), np.uint8),
            "head.scales": random.random((VOCABULARY, WIDTH // BLOCK)).astype(np.float32),
        }
        sizes = {"K": WIDTH, "N": VOCABULARY, "bits": 4, "block_size": BLOCK}
        inputs = ["state", "head.values", "head.scales"]
        nodes += [helper.make_node("MatMulNBits", inputs, ["logits"], domain="com.microsoft", **sizes)]
    elif form == "expanded":
        blocks = WIDTH // BLOCK
        constants = {
            "head.values": random.integers(0, 255, (blocks, BLOCK, VOCABULARY), np.uint8),
            "head.scales": random.random((blocks, 1, VOCABULARY)).astype(np.float32),
            "head.shape": np.array([WIDTH, VOCABULARY]),
        }
        nodes += [
            helper.make_node("Cast", ["head.values"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["wide", "head.scales"], ["scaled"]),
            helper.make_node("Reshape", ["scaled", "head.shape"], ["matrix"]),
            helper.make_node("MatMul", ["state", "matrix"], ["logits"]),
        ]
    else:
        nodes += [helper.make_node("Softmax", ["state"], ["logits"])]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "r", WIDTH])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "r", VOCABULARY])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("form", ["dense", "packed", "expanded"])
def test_both_halves_make_the_logits_of_the_whole(form: str) -> None:
    whole = decoder(form)
    trimmed, head = (session(ir.to_proto(half)) for half in split(ir.from_proto(whole), KEPT))
    x = np.random.default_rng(1).standard_normal((2, 3, WIDTH)).astype(np.float32)
    (expected,) = session(whole).run(["logits"], {"x": x})
    logits, hidden = trimmed.run(["logits", "hidden"], {"x": x})
    assert logits.shape == (2, 3, len(KEPT))
    np.testing.assert_allclose(logits, expected[..., KEPT], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(head.run(["logits"], {"hidden": hidden})[0], expected, rtol=1e-5, atol=1e-5)
    assert [one.name for one in head.get_inputs()] == ["hidden"]


def test_a_head_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="ends in Softmax; only a product by one matrix can be trimmed"):
        split(ir.from_proto(decoder("none")), KEPT)


def answered(*tokens: int, sure: float = 0.5) -> Answered:
    return Answered(tokens, np.full(len(tokens), sure, np.float32))


def test_what_is_kept_and_how_sure_one_has_to_be() -> None:
    assert kept_tokens([answered(5, 3), answered(3, 9)], [7, 99], [0], 50).tolist() == [0, 3, 5, 7, 9]
    kept = np.array([1, 2, 3])
    assert least_probability([answered(1, 2, sure=0.1)], kept) == 0
    assert least_probability([answered(1, 8, sure=0.6), answered(9, sure=0.4)], kept) == pytest.approx(0.61)


def test_nothing_is_written_where_nothing_is_saved_or_an_answer_changes(tmp_path: Path) -> None:
    bundle = copied(tmp_path / "whole")
    out = tmp_path / "out"
    with pytest.raises(Invalid, match="There are 1 questions; half of them are held out"):
        trim(bundle, out, lambda bundle, kept: [answered(1)], [], [])
    with pytest.raises(Invalid, match="Nothing would be saved: .* asked for 100% of the held-out tokens"):
        trim(bundle, out, lambda bundle, kept: [answered(1, sure=0.995), answered(2, sure=0.995)], [], [])
    turns = iter(range(9))
    with pytest.raises(Invalid, match="1 of 2 answers changed; nothing was written"):
        trim(bundle, out, lambda bundle, kept: [answered(1 + next(turns) // 2), answered(1)], [1, 2], [])
    assert not out.exists()
