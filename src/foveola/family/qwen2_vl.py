"""Qwen2-VL: packed patches of any size, 2x2 merger, decoder with positions on three axes (M-RoPE).

Source: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution"
(arXiv 2409.12191); names and numbers as in transformers' ``Qwen2VLForConditionalGeneration``.
"""

from __future__ import annotations

from typing import Any

from foveola.exchange import Unsupported
from foveola.family.base import (
    Config,
    DecoderNames,
    DecoderShape,
    Family,
    PartNames,
    TowerNames,
    TowerShape,
    required,
)

# transformers' defaults of Qwen2VLImageProcessor, where preprocessor_config.json is silent.
_MIN_PIXELS = 56 * 56
_MAX_PIXELS = 28 * 28 * 1280
_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL.Image.Resampling
MAX_PATCHES = 4096
"""All pictures of one request together; the vision graph's mask is this squared (64 MB at most)."""


def _text(config: Config) -> Config:
    """The decoder's settings: nested in newer checkpoints, flat in the first ones."""
    nested = config.get("text_config")
    return nested if nested else config


def _decoder_shape(config: Config) -> DecoderShape:
    text = _text(config)
    heads = int(required(text, "num_attention_heads"))
    head_dim = int(required(text, "hidden_size")) // heads
    return DecoderShape(
        hidden=int(text["hidden_size"]),
        layers=int(required(text, "num_hidden_layers")),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocabulary=int(required(text, "vocab_size")),
        activation=str(text.get("hidden_act", "silu")),
        rotary_axes=_rotary_axes(text, head_dim),
    )


def _rotary_axes(text: Config, head_dim: int) -> tuple[int, ...]:
    """Frequency j belongs to time, row or column, in consecutive sections (``mrope_section``)."""
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    sections = [int(n) for n in rope.get("mrope_section", (16, 24, 24))]
    if sum(sections) != head_dim // 2:
        raise Unsupported(
            f"config.json has mrope_section {sections}, together {sum(sections)}; they must fill half of a head, "
            f"{head_dim // 2}. The configuration does not fit its weights."
        )
    return tuple(index % 3 for index, length in enumerate(sections) for _ in range(length))


def _tower_shape(config: Config) -> TowerShape:
    vision = required(config, "vision_config")
    heads = int(required(vision, "num_heads"))
    head_dim = int(required(vision, "embed_dim")) // heads
    return TowerShape(
        heads=heads,
        head_dim=head_dim,
        merge_size=int(vision.get("spatial_merge_size", 2)),
        activation=str(vision.get("hidden_act", "quick_gelu")),
        rotary_axes=(0,) * (head_dim // 4) + (1,) * (head_dim // 4),
    )


def _vision_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    vision = required(config, "vision_config")
    size = preprocessor.get("size") or {}
    resample = int(preprocessor.get("resample", 3))
    if resample not in _RESAMPLE:
        raise Unsupported(
            f"preprocessor_config.json has resample {resample}; expected one of "
            f"{', '.join(f'{number} ({name})' for number, name in _RESAMPLE.items())}."
        )
    return {
        "patch_size": int(vision.get("patch_size", 14)),
        "merge_size": int(vision.get("spatial_merge_size", 2)),
        "temporal_patch_size": 1,  # the exporter adds up the kernels of a still picture's equal frames
        "min_pixels": int(preprocessor.get("min_pixels") or size.get("shortest_edge") or _MIN_PIXELS),
        "max_pixels": int(preprocessor.get("max_pixels") or size.get("longest_edge") or _MAX_PIXELS),
        "image_mean": [float(x) for x in preprocessor.get("image_mean") or _CLIP_MEAN],
        "image_std": [float(x) for x in preprocessor.get("image_std") or _CLIP_STD],
        "resample": _RESAMPLE[resample],
        "max_patches": MAX_PATCHES,
    }


def _text_section(config: Config, max_length: int) -> dict[str, Any]:
    shape = _decoder_shape(config)
    return {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "max_length": min(max_length, int(_text(config).get("max_position_embeddings", 32768))),
    }


def _token_ids(config: Config, generation: Config) -> dict[str, int | list[int] | None]:
    text = _text(config)
    ends = generation.get("eos_token_id", text.get("eos_token_id"))
    pad = generation.get("pad_token_id", text.get("pad_token_id"))
    return {
        "image": int(required(config, "image_token_id")),
        "vision_start": int(required(config, "vision_start_token_id")),
        "vision_end": int(required(config, "vision_end_token_id")),
        "eos": [int(i) for i in (ends if isinstance(ends, list) else [ends]) if i is not None],
        "pad": None if pad is None else int(pad),
    }


def _evidence_layer(config: Config) -> int:
    """Two thirds up: low layers look everywhere, the last ones at the words that they are about to say."""
    return min(_decoder_shape(config).layers * 2 // 3, _decoder_shape(config).layers - 1)


QWEN2_VL = Family(
    model_type="qwen2_vl",
    model_class="Qwen2VLForConditionalGeneration",
    geometry="qwen2_vl",
    parts=PartNames(
        vision="model.visual",
        decoder="model.language_model",
        embedding="model.language_model.embed_tokens",
        head="lm_head",
    ),
    decoder=DecoderNames(),
    tower=TowerNames(),
    decoder_shape=_decoder_shape,
    tower_shape=_tower_shape,
    vision_section=_vision_section,
    text_section=_text_section,
    token_ids=_token_ids,
    evidence_layer=_evidence_layer,
)
"""The record of this family."""
