from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from foveola.exchange import Invalid  # noqa: E402
from foveola.family.qwen2_vl import QWEN2_VL  # noqa: E402
from foveola.lower.storage import Rule, apply, plan  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402

pytestmark = pytest.mark.torch
HEAD, EMBEDDING, PATCH = QWEN2_VL.parts.head, QWEN2_VL.parts.embedding, "model.visual.patch_embed.proj"
DOWN = "model.language_model.layers.1.mlp.down_proj"


def test_every_matrix_has_a_place_in_the_plan(model: Any) -> None:
    planned = plan(model, QWEN2_VL, [])
    assert {PATCH, DOWN, HEAD, EMBEDDING, "model.visual.merger.mlp.2"} <= planned.keys()
    matrices = {name.removesuffix(".weight") for name, p in model.named_parameters() if p.ndim >= 2} | {HEAD}
    assert planned.keys() == matrices
    assert set(planned.values()) == {"fp32"}


def test_the_last_rule_that_matches_counts(model: Any) -> None:
    planned = plan(model, QWEN2_VL, [Rule("model.language_model.*", Format(4)), Rule("*.down_proj", "fp16")])
    assert planned[DOWN] == "fp16"
    assert planned["model.language_model.layers.1.mlp.up_proj"] == Format(4)
    assert planned[HEAD] == "fp32"


def test_a_pattern_that_matches_nothing_is_an_error_with_examples(model: Any) -> None:
    with pytest.raises(Invalid) as caught:
        plan(model, QWEN2_VL, [Rule("model.vision_tower.*", Format(4))])
    message = caught.value.message
    assert message.startswith("the pattern 'model.vision_tower.*' matches no module; modules have names like ")
    assert PATCH in message
    assert message.endswith("Correct the pattern or leave it out.")


def test_the_model_becomes_the_reference_of_what_is_stored(model: Any) -> None:
    exact = model.get_submodule(DOWN).weight.clone()
    stored = apply(model, {DOWN: Format(4)})
    rounded = model.get_submodule(DOWN).weight
    assert torch.equal(rounded, stored.packed[DOWN].dequantised())
    assert not torch.equal(rounded, exact)


def test_halves_are_rounded_so_that_a_file_of_halves_is_exact(model: Any) -> None:
    stored = apply(model, {DOWN: "fp16"})
    weight = model.get_submodule(DOWN).weight
    assert torch.equal(weight.half().float(), weight)
    assert stored.packed == {}


def test_head_and_embedding_are_tied_no_longer_when_they_are_stored_differently(model: Any) -> None:
    assert model.lm_head.weight is model.get_submodule(EMBEDDING).weight
    exact = model.lm_head.weight.clone()
    apply(model, {EMBEDDING: "fp32", HEAD: Format(4)})
    assert torch.equal(model.get_submodule(EMBEDDING).weight, exact)
    assert not torch.equal(model.lm_head.weight, exact)


def test_the_patch_kernel_is_rounded_as_it_is_folded(model: Any) -> None:
    stored = apply(model, {PATCH: Format(8)})
    kernel = model.get_submodule(PATCH).weight
    assert torch.allclose(kernel.sum(dim=2).flatten(1), stored.packed[PATCH].dequantised(), atol=1e-6)
    assert torch.equal(kernel[:, :, 0], kernel[:, :, 1])


def test_the_finding_has_bytes_and_error_before_and_after(model: Any) -> None:
    finding = apply(model, plan(model, QWEN2_VL, [Rule("model.*", Format(4)), Rule(HEAD, Format(8))])).finding
    assert finding.changed == "weights rounded to nearest: 26 x int4/32@4, 1 x int8/32@4"
    elements = sum(p.numel() for n, p in model.named_parameters() if p.ndim >= 2 and n != f"{HEAD}.weight")
    before = 4 * (elements - model.get_submodule(PATCH).weight.numel() // 2 + model.lm_head.weight.numel())
    assert finding.before == {"weight_bytes": before, "relative_weight_error": 0.0}
    after = finding.after["weight_bytes"]
    assert isinstance(after, int)
    assert 0.13 < after / before < 0.2
    error = finding.after["relative_weight_error"]
    assert isinstance(error, float)
    assert 0.02 < error < 0.12


def test_what_the_checkpoint_holds_packed_is_stored_code_for_code(model: Any) -> None:
    from dataclasses import replace

    from foveola.lower.storage import keeping
    from foveola.weights.packed import pack

    coarse = pack(model.get_submodule(DOWN).weight * 1.01, Format(4, 64))
    model.get_submodule(DOWN).weight.copy_(coarse.dequantised())
    planned = keeping(plan(model, QWEN2_VL, [Rule("model.language_model.*", Format(8, 32, 1))]), {DOWN: coarse})
    assert planned[DOWN] == Format(4, 64, 1)
    stored = apply(model, planned, {DOWN: coarse})
    assert stored.packed[DOWN].format == Format(4, 64, 1)
    assert torch.equal(stored.packed[DOWN].values, coarse.values)
    assert torch.equal(replace(stored.packed[DOWN], format=coarse.format).dequantised(), coarse.dequantised())
    assert "1 x int4/64@1 as packed" in stored.finding.changed


def test_whoever_asks_for_whole_weights_gets_them_unpacked(model: Any) -> None:
    from foveola.lower.storage import keeping
    from foveola.weights.packed import pack

    coarse = pack(model.get_submodule(DOWN).weight, Format(4, 64))
    planned = keeping(plan(model, QWEN2_VL, []), {DOWN: coarse})
    assert planned[DOWN] == "fp32"
    assert apply(model, planned, {DOWN: coarse}).packed == {}
