"""The gate must close: a graph that is a little wrong has to be found, at the right place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import onnx_ir as ir  # noqa: E402

from foveola.artifact import Bundle, Checkpoint  # noqa: E402
from foveola.exchange import Damaged  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.lower.options import CompileOptions  # noqa: E402
from foveola.lower.parity import Subject, check_parity  # noqa: E402

pytestmark = pytest.mark.torch
Checked = Callable[..., Any]


@pytest.fixture
def checked(checkpoint: Path, compiled: Callable[[str], Bundle], model: Any) -> Checked:
    """Check the fp32 graphs after ``change(graphs)``, against a model that nothing touched."""
    bundle = compiled("fp32")
    config = Checkpoint.open(checkpoint).config
    model.set_attn_implementation("eager")

    def check(change: Callable[[dict[str, ir.Model]], None] = lambda graphs: None, **options: Any) -> Any:
        graphs = {role: ir.load(bundle.file(file)) for role, file in bundle.model["graphs"].items()}
        change(graphs)
        subject = Subject(
            model, family_of(config), config, bundle.model["vision"], bundle.model["evidence_layer"],
            CompileOptions(**options),
        )  # fmt: skip
        return check_parity(graphs, subject)

    return check


def constant(graph: ir.Model, name: str, change: Callable[[np.ndarray[Any, Any]], None]) -> None:
    value = graph.graph.initializers[name]
    assert value.const_value is not None
    array = copy.deepcopy(value.const_value.numpy())
    change(array)
    value.const_value = ir.tensor(array, name=name)


def node(graph: ir.Model, operator: str, index: int = 0) -> ir.Node:
    return [one for one in graph.graph if one.op_type == operator][index]


def test_good_graphs_pass_with_the_errors_in_the_finding(checked: Checked) -> None:
    finding = checked()
    assert set(finding.after) == {
        "vision_features_error",
        "embed_rows_error",
        "decoder_logits_error",
        "decoder_evidence_error",
        "decoder_cache_error",
    }
    assert all(error < 1e-5 for error in finding.after.values())
    assert finding.options["tolerance"] == 1e-4


def test_a_prompt_of_the_length_that_was_asked_for_is_compared(checked: Checked) -> None:
    few, more = checked(), checked(text_length=128, image_px=(112, 224))
    count = [int(finding.changed.split()[1]) for finding in (few, more)]
    assert count[1] == count[0] + 1 + (1 + 1 + 4)  # a picture; logits, evidence, two layers of keys and values


def test_a_single_wrong_weight_is_found(checked: Checked) -> None:
    def change(graphs: dict[str, ir.Model]) -> None:
        def one(weight: np.ndarray[Any, Any]) -> None:
            weight[3, 5] += 0.05

        constant(graphs["decoder"], "blocks.1.down.weight", one)

    with pytest.raises(Damaged) as caught:
        checked(change)
    message = caught.value.message
    assert message.startswith("decoder.onnx differs from the model by ")
    assert "in the comparison 'prompt (logits)'; the tolerance is 0.0001. Nothing was written." in message


def test_pictures_that_see_each_other_are_found(checked: Checked) -> None:
    def change(graphs: dict[str, ir.Model]) -> None:
        attention = node(graphs["vision"], "MultiHeadAttention")
        attention.replace_input_with(5, None)

    with pytest.raises(Damaged, match=r"vision.onnx differs .* 'three pictures of different size \(features\)'"):
        checked(change)


def test_the_wrong_position_axis_is_found(checked: Checked) -> None:
    def change(graphs: dict[str, ir.Model]) -> None:
        constant(graphs["decoder"], "rotary.frequencies", lambda table: np.copyto(table, table[::-1].copy()))

    with pytest.raises(Damaged, match=r"decoder.onnx differs"):
        checked(change)


def test_evidence_over_keys_of_another_row_is_found(checked: Checked) -> None:
    def change(graphs: dict[str, ir.Model]) -> None:
        where = node(graphs["decoder"], "Where")
        scores = where.inputs[1]
        assert scores is not None
        where.outputs[0].replace_all_uses_with(scores)  # no mask

    with pytest.raises(Damaged, match=r"decoder.onnx differs .* 'two prompts of 9 and 6 \(evidence\)'"):
        checked(change)


def test_a_swapped_row_of_the_embedding_is_found(checked: Checked) -> None:
    def change(graphs: dict[str, ir.Model]) -> None:
        def swap(table: np.ndarray[Any, Any]) -> None:
            table[[0, 999]] = table[[999, 0]]

        name = next(iter(graphs["embed"].graph.initializers))
        constant(graphs["embed"], name, swap)

    with pytest.raises(Damaged, match=r"embed.onnx differs .* 'first and last token \(rows\)'"):
        checked(change)


def test_not_a_number_does_not_pass(checked: Checked) -> None:
    def change(graphs: dict[str, ir.Model]) -> None:
        constant(graphs["vision"], "merger_down.bias", lambda bias: bias.fill(np.nan))

    with pytest.raises(Damaged, match=r"vision.onnx differs from the model by nan"):
        checked(change)
