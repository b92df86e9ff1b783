from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import onnx  # noqa: E402
import onnx_ir as ir  # noqa: E402
import onnxruntime as ort  # noqa: E402

from foveola.lower.aligned import ALIGNMENT, constants, save_aligned  # noqa: E402

pytestmark = pytest.mark.torch


def _sum(arrays: list[np.ndarray]) -> ir.Model:
    """``y = x + Σ constants``."""
    x = ir.Value(name="x", shape=ir.Shape(["n"]), type=ir.TensorType(ir.DataType.FLOAT))
    values = [
        ir.Value(name=f"c{i}", const_value=ir.tensor(a, name=f"c{i}"), shape=ir.Shape(a.shape), type=x.type)
        for i, a in enumerate(arrays)
    ]
    total, nodes = x, []
    for value in values:
        nodes.append(ir.node("Add", [total, value]))
        total = nodes[-1].outputs[0]
    total.name, total.type, total.shape = "y", x.type, x.shape
    graph = ir.Graph([x], [total], nodes=nodes, initializers=values, opset_imports={"": 21}, name="sum")
    return ir.Model(graph, ir_version=10)


def test_every_constant_begins_on_a_boundary_whatever_the_names_and_sizes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(1).astype(np.float32) for _ in range(40)]
    arrays[3] = np.zeros((300, 7), np.float32)
    model = _sum(arrays)
    for index, value in enumerate(list(model.graph.initializers.values())):
        value.name = "n" * (index * 5 % 33 + 1) + str(index)
    path = tmp_path / "graph.onnx"
    save_aligned(model, path)
    found = constants(path)
    assert [one.name for one in found] == [t.name for t in onnx.load(path).graph.initializer]
    assert len(found) == 40
    raw = path.read_bytes()
    data = {t.name: t.raw_data for t in onnx.load(path).graph.initializer}
    assert all(raw[one.offset :].startswith(data[one.name]) for one in found)
    assert all(one.offset % ALIGNMENT == 0 for one in found)


def test_it_is_the_same_graph_to_every_reader(tmp_path: Path) -> None:
    arrays = [np.full(1, i, np.float32) for i in range(7)]
    plain, aligned = tmp_path / "plain.onnx", tmp_path / "aligned.onnx"
    ir.save(_sum(arrays), plain)
    save_aligned(_sum(arrays), aligned)
    onnx.checker.check_model(onnx.load(aligned))
    x = np.arange(3, dtype=np.float32)
    for path in (plain, aligned):
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": x})[0].tolist() == [21, 22, 23]
    read = {t.name: onnx.numpy_helper.to_array(t).tolist() for t in onnx.load(aligned).graph.initializer}
    assert read == {f"c{i}": [float(i)] for i in range(7)}


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "1.onnx", tmp_path / "2.onnx"
    for path in (first, second):
        save_aligned(_sum([np.ones(1, np.float32)]), path)
    assert first.read_bytes() == second.read_bytes()


def test_rows_that_are_no_whole_boundary_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    model = _sum([np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32)])
    save_aligned(model, path)
    assert [(one.row, one.aligned) for one in constants(path)] == [(16, True), (12, False)]
