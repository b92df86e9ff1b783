"""A bundle with a place of selection: what its graphs take and give, and that the gate has looked at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import onnxruntime as ort

from foveola.artifact import Bundle
from foveola.exchange import Invalid
from foveola.intake.geometry import patch_positions
from foveola.lower.options import CompileOptions

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def bundle(selecting_bundle: Path) -> Bundle:
    return Bundle.open(selecting_bundle)


@pytest.fixture(scope="module")
def vision(bundle: Bundle) -> Any:
    return ort.InferenceSession(str(bundle.file("vision.onnx")), providers=["CPUExecutionProvider"])


def pictures(grids: list[tuple[int, int]], keeps: list[int], first_seed: int = 0) -> dict[str, Any]:
    sizes = [rows * columns for rows, columns in grids]
    pixels = [
        np.random.default_rng(first_seed + seed).normal(size=(size, 588)).astype(np.float32)
        for seed, size in enumerate(sizes)
    ]
    return {
        "pixel_values": np.concatenate(pixels),
        "position_ids": np.concatenate([patch_positions(grid, 2) for grid in grids]),
        "segment_ids": np.repeat(np.arange(len(grids)), sizes),
        "keep": np.repeat(np.array(keeps, np.int64), sizes),
    }


def test_the_graphs_have_the_names_and_sizes_of_the_contract(bundle: Bundle, vision: Any) -> None:
    inputs = {value.name: (value.type, value.shape) for value in vision.get_inputs()}
    assert inputs["keep"] == ("tensor(int64)", ["patches"])
    outputs = {value.name: (value.type, value.shape) for value in vision.get_outputs()}
    assert outputs == {
        "features": ("tensor(float)", ["kept", 64]),
        "kept": ("tensor(int64)", ["kept"]),
        "counts": ("tensor(float)", ["kept"]),
    }
    decoder = ort.InferenceSession(str(bundle.file("decoder.onnx")), providers=["CPUExecutionProvider"])
    assert {value.name: value.shape for value in decoder.get_inputs()}["key_bias"] == ["batch", "keys"]
    assert bundle.model["select"] == {"after": 1, "tokens": None}


def test_the_gate_compared_what_is_kept_and_what_becomes_of_it(bundle: Bundle) -> None:
    (parity,) = (finding for finding in bundle.lineage if finding.step == "lower.parity")
    assert parity.after["vision_selection_error"] == 0
    assert float(parity.after["vision_features_error"]) < 1e-4
    assert float(parity.after["decoder_logits_error"]) < 1e-4


def test_each_picture_keeps_its_own_number(vision: Any) -> None:
    features, kept, counts = vision.run(None, pictures([(8, 8), (4, 6), (2, 2)], [5, 3, 9]))
    assert [int(((kept >= a) & (kept < b)).sum()) for a, b in ((0, 16), (16, 22), (22, 23))] == [5, 3, 1]
    assert features.shape == (9, 64)
    assert [float(counts[:5].sum()), float(counts[5:8].sum()), float(counts[8])] == [16, 6, 1]


def test_a_picture_has_the_same_features_whatever_is_beside_it(vision: Any) -> None:
    alone, kept_alone, _ = vision.run(None, pictures([(8, 8)], [6]))
    for other in ((2, 2), (8, 12)):
        together, kept, _ = vision.run(None, pictures([(8, 8), other], [6, 2]))
        assert kept[:6].tolist() == kept_alone.tolist()
        np.testing.assert_allclose(together[:6], alone, atol=1e-4)


def test_what_cannot_be_asked_for_is_told() -> None:
    with pytest.raises(Invalid, match="visual_tokens is 8, but nothing selects them; say behind how many blocks"):
        CompileOptions(visual_tokens=8)
    with pytest.raises(Invalid, match="visual_tokens is 0; expected at least 1"):
        CompileOptions(select_after=1, visual_tokens=0)


def test_a_place_that_the_tower_does_not_have_is_refused(model: Any) -> None:
    from foveola.family import family_of
    from foveola.lower.export import export_vision

    config = model.config.to_dict()
    with pytest.raises(Invalid, match="select_after is 3; the vision tower has 2 blocks, expected 0 to 2"):
        export_vision(model, family_of(config), config, {}, 3)
