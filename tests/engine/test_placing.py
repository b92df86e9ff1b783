"""Tensors become the constants that the workshop would have written, bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foveola.engine.initializers import Initializer
from foveola.engine.placing import METADATA, Source, constants_of, read_sources, rounded
from foveola.exchange import Damaged, Invalid

RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def there(**arrays: np.ndarray) -> dict[str, Initializer]:
    return {name.replace("__", "."): Initializer(array.dtype, array.shape) for name, array in arrays.items()}


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (4, 16), (8, 128), (8, 32)])
@pytest.mark.parametrize("shape", [(6, 96), (5, 70)])
def test_rounding_is_that_of_the_workshop(bits: int, block: int, shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch", reason="the workshop is not installed")
    from foveola.weights.formats import Format
    from foveola.weights.packed import pack

    matrix = weights(*shape)
    matrix[0] = 0
    matrix[1] = np.abs(matrix[1])
    packed = pack(torch.from_numpy(matrix), Format(bits, block))
    source = Source("layer.weight", "matrix", ("a",), f"int{bits}/{block}@4")
    present = {
        f"layer.{part}": Initializer(np.dtype(kind), tuple(getattr(packed, part).shape))
        for part, kind in (("values", np.uint8), ("scales", np.float32), ("zeros", np.uint8))
    }
    made = constants_of(source, {"a.weight": matrix}, present)
    for part in ("values", "scales", "zeros"):
        np.testing.assert_array_equal(made[f"layer.{part}"], getattr(packed, part).numpy())


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_widened_at_load_is_laid_out_as_the_workshop_does(bits: int) -> None:
    torch = pytest.importorskip("torch", reason="the workshop is not installed")
    import onnx_ir as ir

    from foveola.lower.narrow import expand_at_load
    from foveola.weights.formats import Format
    from foveola.weights.packed import pack

    matrix = weights(6, 70)
    form = Format(bits, 32, expand=True)
    packed = pack(torch.from_numpy(matrix), form)
    wide = ir.Value(name="x.weight", const_value=ir.tensor(packed.dequantised().t().contiguous().numpy()))
    node = ir.node("Identity", [wide])
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=[wide], opset_imports={"": 23})
    model = ir.Model(graph, ir_version=10)
    expand_at_load(model, {"x.weight": packed})
    wanted = {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if name.split(".")[-1] in ("values", "zeros", "scales") and value.const_value is not None
    }
    present = {name: Initializer(array.dtype, array.shape) for name, array in wanted.items()}
    made = constants_of(Source("x.weight", "matrix", ("a",), str(form)), {"a.weight": matrix}, present)
    assert made.keys() == wanted.keys() and len(made) == 3
    for name, array in wanted.items():
        np.testing.assert_array_equal(made[name], array)


def test_matrices_lie_side_by_side_transposed() -> None:
    q, k = weights(4, 6), weights(2, 6)
    source = Source("qkv.weight", "matrix", ("q", "k"), "fp32")
    made = constants_of(source, {"q.weight": q, "k.weight": k}, there(qkv__weight=np.zeros((6, 6), np.float32)))
    np.testing.assert_array_equal(made["qkv.weight"], np.concatenate([q, k]).T)
    bias = Source("qkv.bias", "bias", ("q", "k"), "fp32")
    parts = {"q.bias": weights(4), "k.bias": weights(2)}
    made = constants_of(bias, parts, there(qkv__bias=np.zeros(6, np.float32)))
    np.testing.assert_array_equal(made["qkv.bias"], np.concatenate(list(parts.values())))


def test_frames_of_a_patch_kernel_add_up_and_halves_are_rounded() -> None:
    kernel = weights(8, 3, 2, 4, 4)
    source = Source("patch.weight", "matrix", ("proj",), "fp32")
    present = {"patch.weight.half": Initializer(np.dtype(np.float16), (48, 8))}
    made = constants_of(source, {"proj.weight": kernel}, present)
    wanted = kernel.sum(axis=2).reshape(8, 48).T.astype(np.float16)
    np.testing.assert_array_equal(made["patch.weight.half"], wanted)


def test_what_does_not_fit_is_told_with_both_shapes() -> None:
    source = Source("up.weight", "matrix", ("up",), "fp32")
    with pytest.raises(Invalid, match=r"up.weight: the new weights fill \[5, 3\], the graph has \[6, 3\]"):
        constants_of(source, {"up.weight": weights(3, 5)}, there(up__weight=np.zeros((6, 3), np.float32)))
    with pytest.raises(Damaged, match="no constant up.weight, which its own metadata names"):
        constants_of(source, {"up.weight": weights(3, 6)}, {})
    two = Source("qk.weight", "matrix", ("q", "k"), "fp32")
    with pytest.raises(Invalid, match=r"q.weight \[2, 6\], k.weight \[2, 5\] do not fit beside each other"):
        constants_of(two, {"q.weight": weights(2, 6), "k.weight": weights(2, 5)}, {})


def test_a_graph_without_the_table_is_refused() -> None:
    entry = {"a.weight": {"kind": "matrix", "from": ["m.a"], "format": "fp32"}}
    assert read_sources({METADATA: json.dumps(entry)}, "x.onnx") == (Source("a.weight", "matrix", ("m.a",), "fp32"),)
    with pytest.raises(Damaged, match="vision.onnx does not say which weights are in it"):
        read_sources({}, "vision.onnx")


@pytest.mark.torch
@pytest.mark.parametrize("bits", [4, 8])
def test_rounding_around_zero_is_that_of_the_workshop(bits: int) -> None:
    torch = pytest.importorskip("torch", reason="the workshop is not installed")
    from foveola.weights.formats import Format
    from foveola.weights.packed import pack

    matrix = weights(16, 100)
    matrix[3] = 0
    packed = pack(torch.from_numpy(matrix), Format(bits, 32, symmetric=True))
    q, scales, zeros = rounded(matrix, bits, 32, symmetric=True)
    np.testing.assert_array_equal(packed.codes().numpy(), q)
    np.testing.assert_array_equal(packed.scales.numpy(), scales)
    assert packed.around_zero
    assert (zeros == 2 ** (bits - 1)).all()
    assert (scales < 0).any()  # where the largest weight of a block is above 0
    back = ((q.astype(np.float32) - zeros[..., None]) * scales[..., None]).reshape(16, 128)[:, :100]
    np.testing.assert_allclose(back, packed.dequantised().numpy(), atol=1e-7)
    assert float(np.abs(back - matrix).max()) <= float(np.abs(scales).max())


def test_the_error_of_rounding_is_half_a_step() -> None:
    matrix = weights(16, 128)
    q, scales, zeros = rounded(matrix, 4, 32)
    back = ((q.astype(np.float32) - zeros[..., None]) * scales[..., None]).reshape(16, 128)
    assert (np.abs(back - matrix).reshape(16, 4, 32).max(axis=-1) <= 0.51 * scales + 1e-6).mean() > 0.9


def test_what_16_bits_do_not_hold_is_refused_with_its_largest_value() -> None:
    present = {"x.weight": Initializer(np.dtype(np.float16), (2, 2))}
    source = Source("x.weight", "tensor", ("x.weight",), "fp16")
    with pytest.raises(
        Invalid, match=r"^x.weight holds values up to 70000, beyond float16, which the graph keeps it in;"
    ):
        constants_of(source, {"x.weight": np.array([[1, -7e4], [0, 2]], np.float32)}, present)
