"""Idefics3 and SmolVLM: a SigLIP tower over named tiles, squares of features in one, a decoder of the Llama kind.

Sources: Laurençon et al. 2024 (arXiv 2408.12637); Marafioti et al. 2025, "SmolVLM" (arXiv 2504.05299); names and
numbers as in transformers' ``Idefics3ForConditionalGeneration`` and ``SmolVLMForConditionalGeneration``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveola.family import settings
from foveola.family.base import Config, DecoderNames, Family, PartNames, TowerNames, TowerShape, required
from foveola.family.llama import llama_evidence, llama_text


def _tower_shape(config: Config) -> TowerShape:
    vision = required(config, "vision_config")
    heads = int(vision.get("num_attention_heads", 16))
    return TowerShape(
        heads=heads,
        head_dim=int(vision.get("hidden_size", 1152)) // heads,
        merge_size=int(config.get("scale_factor", 2)),
        activation=str(vision.get("hidden_act", "gelu_pytorch_tanh")),
        tile=int(vision.get("image_size", 224)),
    )


def _vision_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    vision = required(config, "vision_config")
    tile = int(vision.get("image_size", 224))
    size = preprocessor.get("size") or {}
    return {
        "tile": tile,
        "patch_size": int(vision.get("patch_size", 32)),
        "merge_size": int(config.get("scale_factor", 2)),
        "max_tiles": settings.MAX_TILES,
        "longest_edge": int(size.get("longest_edge", 4 * tile)),
        "split": bool(preprocessor.get("do_image_splitting", True)),
        "tile_border": "<fake_token_around_image>",
        "whole_picture": "<global-img>",
        **settings.colours(preprocessor, settings.HALF, settings.HALF),
        "resample": settings.resampling(preprocessor, default=1),
    }


IDEFICS3 = Family(
    model_type="idefics3",
    model_class="Idefics3ForConditionalGeneration",
    geometry="idefics3",
    parts=PartNames(
        vision="model.vision_model",
        decoder="model.text_model",
        embedding="model.text_model.embed_tokens",
        head="lm_head",
        projector=("model.connector.modality_projection.proj",),
    ),
    decoder=DecoderNames(),
    tower=TowerNames(
        patch="embeddings.patch_embedding",
        rotary=None,
        position="embeddings.position_embedding",
        last_norm="post_layernorm",
        blocks="encoder.layers",
        attention_norm="layer_norm1",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.out_proj",
        mlp_norm="layer_norm2",
    ),
    decoder_shape=settings.decoder_shape,
    tower_shape=_tower_shape,
    vision_section=_vision_section,
    text_section=llama_text,
    token_ids=settings.token_ids,
    evidence_layer=llama_evidence,
)
"""The record of Idefics3."""

SMOLVLM = replace(IDEFICS3, model_type="smolvlm", model_class="SmolVLMForConditionalGeneration")
"""The record of SmolVLM."""
