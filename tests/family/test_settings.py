"""What checkpoints leave unsaid is what transformers' configurations say."""

from __future__ import annotations

from typing import Any

import pytest

from foveola.exchange import Damaged, Unsupported
from foveola.family import family_of, settings
from foveola.family.qwen3_vl import QWEN3_VL, QWEN3_VL_MOE


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_decoders_without_numbers_have_those_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    reference = transformers.AutoConfig.for_model(kind)
    shape = settings.decoder_shape({"text_config": {"model_type": kind}})
    assert shape.hidden == reference.hidden_size
    assert shape.layers == reference.num_hidden_layers
    assert shape.heads == reference.num_attention_heads
    assert shape.kv_heads == reference.num_key_value_heads
    assert shape.vocabulary == reference.vocab_size
    text = settings.text_section(shape, {"text_config": {"model_type": kind}}, 10**9)
    window = getattr(reference, "sliding_window", None) or 10**9
    assert text["max_length"] == min(reference.max_position_embeddings, window)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["clip_vision_model", "siglip_vision_model"])
def test_towers_without_numbers_have_those_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    reference = transformers.AutoConfig.for_model(kind)
    ours = settings.vision_config({"vision_config": {"model_type": kind}})
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size", "hidden_act"):
        assert ours[name] == getattr(reference, name)


def test_ends_and_padding() -> None:
    assert settings.end_and_pad({"text_config": {"eos_token_id": 7}}, {}) == {"eos": [7], "pad": 7}
    assert settings.end_and_pad({"eos_token_id": 2, "pad_token_id": -1}, {}) == {"eos": [2], "pad": 2}
    assert settings.end_and_pad({}, {"eos_token_id": [3, 4], "pad_token_id": 5}) == {"eos": [3, 4], "pad": 5}


def test_the_image_token_under_both_names() -> None:
    assert settings.image_token({"image_token_index": 9}) == 9
    assert settings.image_token({"image_token_id": 8}) == 8
    with pytest.raises(Damaged, match="lacks 'image_token_id'"):
        settings.image_token({})


def test_the_blocks_that_count() -> None:
    vision = {"num_hidden_layers": 24}
    assert settings.used_blocks(vision, -2) == 23
    assert settings.used_blocks(vision, -1) == 24
    assert settings.used_blocks(vision, 5) == 5
    with pytest.raises(Unsupported, match=r"vision_feature_layer \[-2, 5\]; expected one layer"):
        settings.used_blocks(vision, [-2, 5])


def test_a_slot_is_never_longer_than_a_window() -> None:
    config: dict[str, Any] = {
        "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 9, "sliding_window": 100,
    }  # fmt: skip
    shape = settings.decoder_shape(config)
    assert settings.text_section(shape, config, 4096)["max_length"] == 100
    assert settings.text_section(shape, config | {"use_sliding_window": False}, 4096)["max_length"] == 4096


def test_deepstack_and_experts_of_qwen3_vl() -> None:
    text = {
        "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "vocab_size": 9, "head_dim": 16,
        "rope_parameters": {"mrope_section": [4, 2, 2]}, "num_experts": 8, "num_experts_per_tok": 2,
        "mlp_only_layers": [0], "decoder_sparse_step": 2,
    }  # fmt: skip
    config = {"text_config": text, "vision_config": {"num_heads": 4, "hidden_size": 64}}
    shape = QWEN3_VL_MOE.decoder_shape(config)
    assert shape.rotary_axes == (0, 1, 2, 0, 1, 2, 0, 0)
    assert (shape.deepstack, shape.embedding, shape.axes) == (3, 256, 3)
    assert (shape.experts, shape.experts_per_token, shape.dense_layers) == (8, 2, (0, 2))
    assert QWEN3_VL.tower_shape(config).deepstack == (8, 16, 24)


def test_windows_of_qwen2_5_vl() -> None:
    config = {"model_type": "qwen2_5_vl", "vision_config": {"num_heads": 16, "hidden_size": 1280}}
    shape = family_of(config).tower_shape(config)
    assert (shape.window, shape.whole_blocks) == (8, (7, 15, 23, 31))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vision_feature_select_strategy": "full"}, "with vision_feature_select_strategy 'full'; supported are"),
        ({"vision_config": {"model_type": "pixtral"}}, "has a pixtral with"),
    ],
)
def test_towers_that_are_not_read(config: dict[str, Any], message: str) -> None:
    usual = {"vision_config": {"model_type": "clip_vision_model"}}
    with pytest.raises(Unsupported, match=message):
        family_of({"model_type": "llava"}).tower_shape({**usual, **config})
