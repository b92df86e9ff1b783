"""Operator by operator: the standard form computes what ONNX Runtime's own operator does, at several shapes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

ir = pytest.importorskip("onnx_ir")
import onnxruntime as ort  # noqa: E402

from foveola.exchange import Unsupported  # noqa: E402
from foveola.lower.portable import to_portable  # noqa: E402

pytestmark = pytest.mark.torch

RANDOM = np.random.default_rng(0)
FLOAT, INT32 = ir.DataType.FLOAT, ir.DataType.INT32


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def graph(
    kind: str, domain: str, feeds: dict[str, Any], held: dict[str, Any], order: list[str], **attributes: Any
) -> Any:
    """One node; ``feeds`` become inputs of free sizes, ``held`` initializers; as many outputs as ``outputs`` says."""
    outputs = attributes.pop("outputs", 1)
    values: dict[str, Any] = {}
    for name, array in {**feeds, **held}.items():
        free = [f"{name}{axis}" for axis in range(array.ndim)]
        values[name] = ir.Value(name=name, shape=ir.Shape(free if name in feeds else array.shape))
        values[name].type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        if name in held:
            values[name].const_value = ir.tensor(array, name=name)
    node = ir.node(kind, [values.get(name) for name in order], attributes, domain=domain, num_outputs=outputs)
    for index, value in enumerate(node.outputs):
        value.name = f"out{index}"
        value.type = ir.TensorType(FLOAT)
    wanted = (
        [node.outputs[0], *node.outputs[1:3]] if kind == "GroupQueryAttention" else [node.outputs[0], *node.outputs[3:]]
    )
    made = ir.Graph(
        [values[name] for name in feeds], wanted, nodes=[node],
        initializers=[values[name] for name in held], opset_imports={"": 23, "com.microsoft": 1}, name="g",
    )  # fmt: skip
    return ir.Model(made, ir_version=10)


def results(model: Any, feeds: dict[str, Any]) -> list[Any]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def same(kind: str, feeds: dict[str, Any], held: dict[str, Any], order: list[str], domain: str = "com.microsoft",
         **attributes: Any) -> None:  # fmt: skip
    model = graph(kind, domain, feeds, held, order, **attributes)
    wanted, names = results(model, feeds), [value.name for value in model.graph.outputs]
    to_portable(model)
    assert {node.domain for node in model.graph} == {""}
    assert not {"RMSNormalization", "RotaryEmbedding", kind} & {node.op_type for node in model.graph}
    assert [value.name for value in model.graph.outputs] == names
    for ours, theirs in zip(results(model, feeds), wanted, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 2e-6 * max(np.abs(theirs).max(), 1)


def test_normalisations() -> None:
    x, weight = floats(2, 3, 16), floats(16)
    same("RMSNormalization", {"x": x}, {"w": weight}, ["x", "w"], domain="", axis=-1, epsilon=1e-6)
    same(
        "SkipSimplifiedLayerNormalization", {"x": x, "r": floats(2, 3, 16)}, {"w": weight}, ["x", "r", "w"],
        epsilon=1e-5, outputs=4,
    )  # fmt: skip


@pytest.mark.parametrize("slope", [1.0, 1.702])
def test_gates(slope: float) -> None:
    same("QuickGelu", {"x": floats(4, 9)}, {}, ["x"], alpha=slope)


def test_turning_the_halves_of_heads() -> None:
    feeds = {"x": floats(2, 5, 24), "cos": floats(2, 5, 4), "sin": floats(2, 5, 4)}
    same("RotaryEmbedding", feeds, {}, ["x", "cos", "sin"], domain="", num_heads=3, interleaved=0)


@pytest.mark.parametrize("biased", [True, False])
def test_attention_of_all_to_all(biased: bool) -> None:
    feeds = {name: floats(2, 6, 16) for name in "qkv"}
    if biased:
        feeds["b"] = floats(1, 1, 6, 6)
    order = ["q", "k", "v", "-", "-", "b"] if biased else ["q", "k", "v"]
    same("MultiHeadAttention", feeds, {}, order, num_heads=4, scale=0.3)


@pytest.mark.parametrize(("lengths", "chunk"), [((7,), 7), ((9,), 4), ((1,), 1), ((5, 11, 8), 1), ((6, 4), 6)], ids=str)
def test_attention_over_a_slot(lengths: tuple[int, ...], chunk: int) -> None:
    """Prompts, a chunk behind a past, single tokens, rows of different lengths."""
    batch, slot = len(lengths), 16
    feeds = {
        "q": floats(batch, chunk, 4 * 8), "k": floats(batch, chunk, 2 * 8), "v": floats(batch, chunk, 2 * 8),
        "pk": floats(batch, 2, slot, 8), "pv": floats(batch, 2, slot, 8),
        "s": np.array(lengths, np.int32) - 1, "t": np.array(max(lengths), np.int32),
    }  # fmt: skip
    settings: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "scale": 8**-0.5, "outputs": 3}
    model = to_portable(graph("GroupQueryAttention", "com.microsoft", feeds, {}, list(feeds), **settings))
    out, keys, values = results(model, feeds)
    assert keys.shape == values.shape == (batch, 2, slot, 8)
    for row, length in enumerate(lengths):
        start = max(length - chunk, 0)
        new = min(chunk, length)
        for held, past, fresh in ((keys, "pk", "k"), (values, "pv", "v")):
            assert np.array_equal(held[row, :, :start], feeds[past][row, :, :start])
            expected = feeds[fresh][row].reshape(chunk, 2, 8).transpose(1, 0, 2)
            assert np.array_equal(held[row, :, start : start + new], expected[:, :new])
        for place, head in itertools.product(range(new), range(4)):
            seen = slice(0, start + place + 1)
            query = feeds["q"][row, place].reshape(4, 8)[head]
            scores = keys[row, head // 2, seen] @ query * settings["scale"]
            shares = np.exp(scores - scores.max())
            expected_out = (shares / shares.sum()) @ values[row, head // 2, seen]
            assert np.allclose(out[row, place].reshape(4, 8)[head], expected_out, atol=2e-6)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inner", [64, 72])
def test_products_with_few_bits(bits: int, inner: int) -> None:
    torch = pytest.importorskip("torch")
    from foveola.weights.formats import Format
    from foveola.weights.packed import pack

    packed = pack(torch.from_numpy(floats(24, inner)), Format(bits, 32, 1))
    held = {"w": packed.values.numpy(), "s": packed.scales.numpy(), "z": packed.zeros.numpy(), "b": floats(24)}
    feeds = {"x": floats(2, 3, inner)}
    order = ["x", "w", "s", "z", "-", "b"]
    same(
        "MatMulNBits", feeds, held, order, K=inner, N=24, bits=bits, block_size=32, accuracy_level=1
    )  # fmt: skip


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_few_bits(bits: int) -> None:
    torch = pytest.importorskip("torch")
    from foveola.weights.formats import Format
    from foveola.weights.packed import pack

    packed = pack(torch.from_numpy(floats(20, 64)), Format(bits, 32))
    held = {"w": packed.values.flatten(1).numpy(), "s": packed.scales.numpy(), "z": packed.zeros.numpy()}
    feeds = {"i": np.array([[0, 19, 3], [7, 7, 1]], np.int64)}
    order = ["w", "i", "s", "z"]
    same("GatherBlockQuantized", feeds, held, order, bits=bits, block_size=32, gather_axis=0, quantize_axis=1)


def test_a_mixture_of_experts() -> None:
    feeds = {"x": floats(5, 16), "r": floats(5, 4)}
    held = {"u": floats(4, 24, 16), "d": floats(4, 16, 12)}
    settings = {
        "k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1,
        "activation_alpha": 1.0, "activation_beta": 0.0,
    }  # fmt: skip
    same("MoE", feeds, held, ["x", "r", "u", "-", "d", "-"], **settings)


def test_what_has_no_standard_form_is_named() -> None:
    model = graph("BiasGelu", "com.microsoft", {"x": floats(2, 4)}, {"b": floats(4)}, ["x", "b"])
    with pytest.raises(Unsupported, match="BiasGelu has no form in standard operators; use the ort profile"):
        to_portable(model)
