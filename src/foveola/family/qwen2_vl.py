"""Qwen2-VL: packed patches of any size, 2x2 merger, decoder with positions on three axes (M-RoPE).

Source: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution"
(arXiv 2409.12191); names and numbers as in transformers' ``Qwen2VLForConditionalGeneration``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveola.exchange import Unsupported
from foveola.family import settings
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
MAX_PATCHES = 4096
"""All pictures of one request together; the vision graph's mask is this squared (64 MB at most)."""


def mrope_shape(config: Config) -> DecoderShape:
    """A decoder of the Llama kind whose positions have three axes."""
    shape = settings.decoder_shape(config)
    return replace(shape, rotary_axes=_rotary_axes(settings.text_config(config), shape.head_dim))


def mrope_sections(text: Config, head_dim: int, default: tuple[int, int, int] = (16, 24, 24)) -> list[int]:
    """How many frequencies belong to time, row and column. Raises ``Unsupported`` unless they fill half of a head."""
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    sections = [int(n) for n in rope.get("mrope_section", default)]
    if sum(sections) != head_dim // 2:
        raise Unsupported(
            f"config.json has mrope_section {sections}, together {sum(sections)}; they must fill half of a head, "
            f"{head_dim // 2}. The configuration does not fit its weights."
        )
    return sections


def _rotary_axes(text: Config, head_dim: int) -> tuple[int, ...]:
    """Frequency j belongs to time, row or column, in consecutive sections (``mrope_section``)."""
    sections = mrope_sections(text, head_dim)
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


def packed_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    """model.json ``vision`` of a tower over packed patches."""
    vision = required(config, "vision_config")
    size = preprocessor.get("size") or {}
    return {
        "patch_size": int(vision.get("patch_size", 14)),
        "merge_size": int(vision.get("spatial_merge_size", 2)),
        "temporal_patch_size": 1,  # the exporter adds up the kernels of a still picture's equal frames
        "min_pixels": int(preprocessor.get("min_pixels") or size.get("shortest_edge") or _MIN_PIXELS),
        "max_pixels": int(preprocessor.get("max_pixels") or size.get("longest_edge") or _MAX_PIXELS),
        **settings.colours(preprocessor),
        "resample": settings.resampling(preprocessor),
        "max_patches": MAX_PATCHES,
        # a checkpoint may say into how many tiles its elongated pictures are cut: what it was taught decides
        **({"max_tiles": int(preprocessor["max_tiles"])} if "max_tiles" in preprocessor else {}),
    }


def text_section(config: Config, max_length: int) -> dict[str, Any]:
    """model.json ``text``."""
    return settings.text_section(mrope_shape(config), config, max_length)


def token_ids(config: Config, generation: Config) -> dict[str, int | list[int] | None]:
    """The control tokens of the Qwen-VL families."""
    return {
        "image": settings.image_token(config),
        "vision_start": int(required(config, "vision_start_token_id")),
        "vision_end": int(required(config, "vision_end_token_id")),
        **settings.end_and_pad(config, generation),
    }


def evidence_layer(config: Config) -> int:
    """See ``settings.evidence_layer``."""
    return settings.evidence_layer(settings.decoder_shape(config).layers)


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
    decoder_shape=mrope_shape,
    tower_shape=_tower_shape,
    vision_section=packed_section,
    text_section=text_section,
    token_ids=token_ids,
    evidence_layer=evidence_layer,
)
"""The record of this family."""
