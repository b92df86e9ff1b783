"""Red zones, and real overruns: ONNX Runtime itself is made to write past a buffer by binding it with a wrong shape."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from foveola.engine.redzones import ALIGNMENT, MemoryOverrun, RedZones


def test_arrays_are_zeros_aligned_and_apart() -> None:
    zones = RedZones(100)
    one, two = zones.lasting("one", (3, 5)), zones.passing("two", (7,))
    for array in (one, two):
        assert array.dtype == np.float32 and not array.any() and array.ctypes.data % ALIGNMENT == 0
        array[:] = 1
    zones.check()
    assert zones.checks == 1


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (-1, "1 bytes before the buffer `a` were overwritten, the nearest 0 bytes away"),
        (40, "1 bytes behind the buffer `a` were overwritten, the nearest 0 bytes away"),
        (43, "the nearest 3 bytes away"),
    ],
)
def test_one_byte_outside_is_found_and_placed(offset: int, told: str) -> None:
    zones = RedZones(64)
    array = zones.lasting("a", (10,))
    place = np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(array.ctypes.data + offset))
    place[0] ^= 1
    with pytest.raises(MemoryOverrun, match=told):
        zones.check()


def test_sampling_looks_at_lasting_buffers_now_and_then_and_at_passing_ones_always() -> None:
    zones = RedZones(64, every=3)
    lasting = zones.lasting("a", (4,))
    np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(lasting.ctypes.data + 16))[0] = 0
    zones.check()
    zones.check()
    with pytest.raises(MemoryOverrun, match="`a`"):
        zones.check()


def test_without_zones_nothing_is_between() -> None:
    zones = RedZones(0)
    assert zones.lasting("a", (4,)).base is None
    zones.check()


def doubling(tmp_path: Path) -> ort.InferenceSession:
    onnx = pytest.importorskip("onnx", reason="the workshop is not installed")
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "a.onnx")
    return ort.InferenceSession(str(tmp_path / "a.onnx"))


def test_a_wrong_binding_overruns_for_real_and_is_found(tmp_path: Path) -> None:
    session = doubling(tmp_path)
    zones = RedZones(256)
    out = zones.passing("y", (8,))
    io = session.io_binding()
    io.bind_cpu_input("x", np.ones(12, np.float32))
    io.bind_output("y", "cpu", 0, np.float32, (12,), out.ctypes.data)  # says 12 where there are 8
    session.run_with_iobinding(io)
    assert out.tolist() == [2.0] * 8
    with pytest.raises(MemoryOverrun, match="16 bytes behind the buffer `y` were overwritten, the nearest 0 bytes"):
        zones.check()


async def test_an_engine_that_overran_is_quarantined() -> None:
    from foveola.engine.engine import Engine
    from foveola.engine.options import EngineOptions
    from foveola.exchange import Request, Sampling, Turn, Unavailable
    from foveola.serve.embedded import embedded_bundle

    engine = Engine.open(embedded_bundle(), EngineOptions(threads=1))
    try:
        request = Request("a", (Turn("user", "what?"),), Sampling(max_tokens=3))
        assert [piece async for piece in engine(request)][-1].finish is not None
        assert engine.health().ailment is None
        runner = engine._scheduler._lanes[-1].runner
        decode = runner.decode

        def overrunning(*given: object) -> object:
            buffer = next(iter(runner._kv.values()))  # type: ignore[attr-defined]
            behind = buffer.ctypes.data + buffer.nbytes
            np.ctypeslib.as_array((ctypes.c_uint8 * 4).from_address(behind))[:] = 0
            return decode(*given)  # type: ignore[arg-type]

        runner.decode = overrunning  # type: ignore[method-assign, assignment]
        with pytest.raises(Unavailable):
            [piece async for piece in engine(Request("b", (Turn("user", "which part is it?"),)))]
        engine._thread.join(30)
        assert engine.health().ailment == "its memory was overrun, and it is quarantined"
        with pytest.raises(Unavailable):
            [piece async for piece in engine(request)]
    finally:
        engine.close(0.0)
