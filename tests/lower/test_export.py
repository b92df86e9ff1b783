"""What the graphs look like: names, sizes, operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import onnxruntime as ort

from foveola.artifact import Bundle

pytestmark = pytest.mark.torch


def border(bundle: Bundle, graph: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs: name -> (type, sizes)."""
    session = ort.InferenceSession(str(bundle.file(f"{graph}.onnx")), providers=["CPUExecutionProvider"])
    inputs = {value.name: (value.type, value.shape) for value in session.get_inputs()}
    return inputs, {value.name: (value.type, value.shape) for value in session.get_outputs()}


def operators(bundle: Bundle, graph: str) -> Counter[str]:
    import onnx_ir as ir

    from foveola.lower.inspect import count_operators

    return count_operators(ir.load(bundle.file(f"{graph}.onnx")))


def test_the_vision_graph_has_the_names_and_sizes_of_the_contract(compiled: Callable[[str], Bundle]) -> None:
    inputs, outputs = border(compiled("fp32"), "vision")
    assert inputs == {
        "pixel_values": ("tensor(float)", ["patches", 588]),
        "position_ids": ("tensor(int64)", ["patches", 2]),
        "segment_ids": ("tensor(int64)", ["patches"]),
    }
    assert outputs == {"features": ("tensor(float)", ["features", 64])}


def test_the_embedding_graph_has_the_names_and_sizes_of_the_contract(compiled: Callable[[str], Bundle]) -> None:
    for precision in ("fp32", "int4"):
        inputs, outputs = border(compiled(precision), "embed")
        assert inputs == {"input_ids": ("tensor(int64)", ["batch", "chunk"])}
        assert outputs == {"inputs_embeds": ("tensor(float)", ["batch", "chunk", 64])}


def test_the_decoder_graph_has_the_names_and_sizes_of_the_contract(compiled: Callable[[str], Bundle]) -> None:
    inputs, outputs = border(compiled("fp32"), "decoder")
    cache = [f"{layer}.{part}" for layer in range(2) for part in ("key", "value")]
    assert inputs == {
        "inputs_embeds": ("tensor(float)", ["batch", "chunk", 64]),
        "position_ids": ("tensor(int64)", [3, "batch", "chunk"]),
        "seqlens_k": ("tensor(int32)", ["batch"]),
        "total_sequence_length": ("tensor(int32)", []),
        "logit_index": ("tensor(int64)", ["wanted"]),
        **{f"past.{name}": ("tensor(float)", ["batch", 1, "slot", 32]) for name in cache},
    }
    assert outputs == {
        "logits": ("tensor(float)", ["batch", "wanted", 1000]),
        "evidence": ("tensor(float)", ["batch", "total"]),
        **{f"present.{name}": ("tensor(float)", ["batch", 1, "slot_or_total", 32]) for name in cache},
    }


def test_each_part_of_a_block_is_one_operator(compiled: Callable[[str], Bundle]) -> None:
    decoder = operators(compiled("fp32"), "decoder")
    assert decoder["com.microsoft::GroupQueryAttention"] == 2
    assert decoder["RotaryEmbedding"] == 4
    assert decoder["com.microsoft::SkipSimplifiedLayerNormalization"] == 4
    assert decoder["RMSNormalization"] == 1
    assert decoder["MatMul"] == 2 * 5 + 1 + 1  # qkv, output, gate, up, down; head; evidence
    vision = operators(compiled("fp32"), "vision")
    assert vision["com.microsoft::MultiHeadAttention"] == 2
    assert vision["LayerNormalization"] == 2 * 2 + 1
    assert vision["MatMul"] == 2 * 4 + 3


def test_the_4_bit_weights_stay_4_bit_in_the_graph(compiled: Callable[[str], Bundle]) -> None:
    import onnx_ir as ir

    graph = ir.load(compiled("int4").file("decoder.onnx")).graph
    nodes = [node for node in graph if node.op_type == "MatMulNBits"]
    bits = Counter(node.attributes["bits"].as_int() for node in nodes)
    assert bits == {4: 2 * 5, 8: 1}
    assert {node.attributes["block_size"].as_int() for node in nodes} == {32}
    assert {node.attributes["accuracy_level"].as_int() for node in nodes} == {4}
    assert operators(compiled("int4"), "embed")["com.microsoft::GatherBlockQuantized"] == 1


def test_files_shrink_with_the_bits(compiled: Callable[[str], Bundle]) -> None:
    sizes = {p: {n: d.bytes for n, d in compiled(p).files.items()} for p in ("fp32", "int4")}
    assert sizes["int4"]["decoder.onnx"] < 0.26 * sizes["fp32"]["decoder.onnx"]  # of it 41 % head, at 8 bits
    assert sizes["int4"]["vision.onnx"] < 0.33 * sizes["fp32"]["vision.onnx"]
    assert sizes["int4"]["embed.onnx"] < 0.29 * sizes["fp32"]["embed.onnx"]


def test_a_loaded_session_has_nothing_left_of_what_only_widens(
    compiled: Callable[[str], Bundle], tmp_path_factory: pytest.TempPathFactory
) -> None:
    import onnx_ir as ir

    left = {}
    for precision in ("fp32", "int4"):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(tmp_path_factory.mktemp("loaded") / "vision.onnx")
        ort.InferenceSession(str(compiled(precision).file("vision.onnx")), options, providers=["CPUExecutionProvider"])
        left[precision] = Counter(node.op_type for node in ir.load(options.optimized_model_filepath).graph)
    assert left["int4"] == left["fp32"]
    assert left["fp32"]["SkipLayerNormalization"] == 0  # six times slower than its parts


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A small random language model, compiled with weights rounded around 0."""
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions
    from tests.family.making import llama

    folder = tmp_path_factory.mktemp("spoken")
    llama(folder / "checkpoint")
    options = CompileOptions.of_precision("int4s", max_length=256)
    return compile_checkpoint(folder / "checkpoint", folder / "bundle", options)


def test_in_a_decoder_of_text_attention_turns_what_one_product_makes(spoken: Bundle) -> None:
    import onnx_ir as ir

    graph = ir.load(spoken.file("decoder.onnx"))
    assert not [node for node in graph.graph if node.op_type == "RotaryEmbedding"]
    split = [value.name for node in graph.graph if node.op_type == "Split" for value in node.inputs[:1] if value]
    assert set(split) <= {"inputs_embeds"}  # from features of deepstack, of which there are none
    attentions = [node for node in graph.graph if node.op_type == "GroupQueryAttention"]
    assert attentions
    for node in attentions:
        assert node.attributes["do_rotary"].as_int() == 1
        assert [value is None for value in node.inputs[:3]] == [False, True, True]
    assert "evidence" not in {value.name for value in graph.graph.outputs}
    assert spoken.model["evidence_layer"] is None
    assert {value.name for value in graph.graph.inputs} >= {"inputs_embeds", "position_ids", "seqlens_k"}


def test_weights_rounded_around_zero_need_no_zero_points(spoken: Bundle) -> None:
    import onnx_ir as ir

    products = [node for node in ir.load(spoken.file("decoder.onnx")).graph if node.op_type == "MatMulNBits"]
    assert products
    assert all(len(node.inputs) == 3 or node.inputs[3] is None for node in products)
    assert "int4s/32@4" in spoken.lineage[-3].changed


def test_a_text_that_shows_where_it_looks_keeps_its_evidence(spoken: Bundle, tmp_path: Path) -> None:
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions

    options = CompileOptions(max_length=40, evidence_layer=0)  # a slot that is shorter than the comparisons need
    shown = compile_checkpoint(spoken.path.parent / "checkpoint", tmp_path / "bundle", options)
    assert shown.model["evidence_layer"] == 0
    assert "decoder_evidence_error" in shown.lineage[-1].after
