"""Constants of ONNX files, listed without the onnx package."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.engine.initializers import Initializer, overwritten, read_initializers
from foveola.exchange import Damaged
from foveola.serve.embedded import embedded_bundle


def test_the_list_is_that_of_the_onnx_package() -> None:
    onnx = pytest.importorskip("onnx", reason="the workshop is not installed")
    for file in ("vision.onnx", "embed.onnx", "decoder.onnx"):
        data = (embedded_bundle() / file).read_bytes()
        wanted = {
            one.name: Initializer(onnx.helper.tensor_dtype_to_np_dtype(one.data_type), tuple(one.dims))
            for one in onnx.load_from_string(data).graph.initializer
        }
        assert read_initializers(data, file) == wanted


def test_a_constant_is_overwritten_in_place_and_nothing_else_changes() -> None:
    onnx = pytest.importorskip("onnx", reason="the workshop is not installed")
    data = (embedded_bundle() / "embed.onnx").read_bytes()
    name, there = next(iter(read_initializers(data, "embed.onnx").items()))
    content = np.random.default_rng(0).integers(0, 99, there.shape).astype(there.dtype)
    changed = onnx.load_from_string(overwritten(data, "embed.onnx", {name: content}))
    before = onnx.load_from_string(data)
    for one, other in zip(changed.graph.initializer, before.graph.initializer, strict=True):
        wanted = content if one.name == name else onnx.numpy_helper.to_array(other)
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(one), wanted)
    assert changed.graph.node == before.graph.node
    for wrong in (content[:-1], content.astype(np.float64)):
        with pytest.raises(Damaged, match=f"the constant {name} cannot be overwritten"):
            overwritten(data, "embed.onnx", {name: wrong})


def test_unpacked_dimensions_unknown_types_and_other_fields() -> None:
    tensor = b"\x08\x03\x08\x05\x10\x10\x42\x01w\x4d\x00\x00\x00\x00"  # dims 3, 5; type 16; name w; a fixed32 field
    graph = b"\x2a" + bytes([len(tensor)]) + tensor + b"\x12\x01g"
    model = b"\x08\x0a\x3a" + bytes([len(graph)]) + graph
    assert read_initializers(model, "x.onnx") == {"w": Initializer(None, (3, 5))}


@given(st.binary(max_size=200))
def test_anything_else_is_refused_or_empty(data: bytes) -> None:
    try:
        read = read_initializers(data, "broken.onnx")
    except Damaged as refusal:
        assert refusal.message == "broken.onnx cannot be read as an ONNX graph; compile the bundle anew."
    else:
        assert all(isinstance(one, Initializer) for one in read.values())


@given(st.integers(1, 5000))
def test_a_cut_file_is_refused(cut: int) -> None:
    data = (embedded_bundle() / "embed.onnx").read_bytes()
    assert np.frombuffer(data[:4], np.uint8).size == 4
    with pytest.raises(Damaged):
        read_initializers(data[: len(data) - cut], "embed.onnx")
