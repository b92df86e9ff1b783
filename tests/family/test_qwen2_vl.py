from __future__ import annotations

import copy
from typing import Any

import pytest

from foveola.exchange import Damaged, Unsupported
from foveola.family.qwen2_vl import QWEN2_VL

CONFIG: dict[str, Any] = {
    "model_type": "qwen2_vl",
    "image_token_id": 6,
    "vision_start_token_id": 3,
    "vision_end_token_id": 4,
    "text_config": {
        "hidden_size": 64,
        "num_hidden_layers": 9,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 1000,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6]},
        "eos_token_id": 2,
        "pad_token_id": 0,
    },
    "vision_config": {"embed_dim": 64, "num_heads": 2, "hidden_act": "quick_gelu", "patch_size": 14},
}


def test_the_shape_of_the_decoder() -> None:
    shape = QWEN2_VL.decoder_shape(CONFIG)
    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_dim, shape.vocabulary) == (9, 2, 1, 32, 1000)
    assert shape.rotary_axes == (0,) * 4 + (1,) * 6 + (2,) * 6


def test_a_flat_config_of_the_first_checkpoints_says_the_same() -> None:
    flat = {**CONFIG, **CONFIG["text_config"]}
    del flat["text_config"]
    assert QWEN2_VL.decoder_shape(flat) == QWEN2_VL.decoder_shape(CONFIG)
    assert QWEN2_VL.token_ids(flat, {}) == QWEN2_VL.token_ids(CONFIG, {})


def test_sections_that_do_not_fill_a_head_are_an_error() -> None:
    broken = copy.deepcopy(CONFIG)
    broken["text_config"]["rope_parameters"]["mrope_section"] = [16, 24, 24]
    with pytest.raises(
        Unsupported, match=r"mrope_section \[16, 24, 24\], together 64; they must fill half of a head, 16"
    ):
        QWEN2_VL.decoder_shape(broken)


@pytest.mark.parametrize("key", ["vision_config", "image_token_id"])
def test_a_config_that_lacks_something_is_named(key: str) -> None:
    broken = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(Damaged) as caught:
        QWEN2_VL.vision_section(broken, {})
        QWEN2_VL.token_ids(broken, {})
    assert caught.value.message == (
        f"config.json lacks {key!r}, which a checkpoint of this family has. Copy the checkpoint whole."
    )


def test_half_of_a_vision_head_turns_with_rows_and_half_with_columns() -> None:
    assert QWEN2_VL.tower_shape(CONFIG).rotary_axes == (0,) * 8 + (1,) * 8


@pytest.mark.parametrize(
    "preprocessor",
    [
        {"size": {"shortest_edge": 3136, "longest_edge": 50176}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3},
        {"min_pixels": 3136, "max_pixels": 50176, "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3},
    ],
)
def test_the_vision_section_from_both_spellings_of_the_limits(preprocessor: dict[str, Any]) -> None:
    assert QWEN2_VL.vision_section(CONFIG, preprocessor) == {
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "min_pixels": 3136,
        "max_pixels": 50176,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.25, 0.25, 0.25],
        "resample": "bicubic",
        "max_patches": 4096,
    }


def test_an_unknown_resampling_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"has resample 5; expected one of 0 \(nearest\), 1 \(lanczos\)"):
        QWEN2_VL.vision_section(CONFIG, {"resample": 5})


def test_what_the_processor_does_without_a_file_is_what_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    processor = transformers.Qwen2VLImageProcessorPil()
    section = QWEN2_VL.vision_section(CONFIG, {})
    assert section["min_pixels"] == processor.size["shortest_edge"]
    assert section["max_pixels"] == processor.size["longest_edge"]
    assert section["image_mean"] == list(processor.image_mean)
    assert section["image_std"] == list(processor.image_std)


def test_a_slot_is_never_longer_than_the_model_can_count() -> None:
    assert QWEN2_VL.text_section(CONFIG, 512)["max_length"] == 512
    assert QWEN2_VL.text_section(CONFIG, 4096)["max_length"] == 2048


def test_ends_come_from_the_generation_config_first() -> None:
    assert QWEN2_VL.token_ids(CONFIG, {})["eos"] == [2]
    assert QWEN2_VL.token_ids(CONFIG, {"eos_token_id": [2, 0], "pad_token_id": 0})["eos"] == [2, 0]


def test_the_evidence_layer_is_two_thirds_up() -> None:
    assert QWEN2_VL.evidence_layer(CONFIG) == 6
