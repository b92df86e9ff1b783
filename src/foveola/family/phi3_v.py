"""Phi-3-vision and Phi-3.5-vision: a CLIP tower over crops, a decoder that keeps layers together in one matrix.

Source: Abdin et al. 2024, "Phi-3 Technical Report" (arXiv 2404.14219). transformers has no class for it and the
checkpoint brings code of its own, which is not run: ``foveola.weights.phi3_v`` is the model, by the names of the
checkpoint's tensors.
"""

from __future__ import annotations

from typing import Any

from foveola.family import settings
from foveola.family.base import Config, DecoderNames, Family, PartNames, TowerShape, required
from foveola.family.llama import llama_evidence
from foveola.family.llava import clip_names

_IMAGES = "model.vision_embed_tokens"
_IMAGE_TOKEN = 32044  # <|image|>, which the published tokenizer has and no prompt shows
# openai/clip-vit-large-patch14-336, which the checkpoint's code names instead of describing it.
CLIP_LARGE_336: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
    "hidden_act": "quick_gelu",
    "projection_dim": 768,
}
_MERGE = 2


def tower_config(config: Config) -> dict[str, Any]:
    """The settings of the CLIP tower: the published ones, and where ``img_processor.vision_config`` differs."""
    return {**CLIP_LARGE_336, **(required(config, "img_processor").get("vision_config") or {})}


def _tower_shape(config: Config) -> TowerShape:
    vision = tower_config(config)
    heads = int(vision["num_attention_heads"])
    return TowerShape(
        heads=heads,
        head_dim=int(vision["hidden_size"]) // heads,
        merge_size=_MERGE,
        activation=str(vision["hidden_act"]),
        blocks=settings.used_blocks(vision, -2),
        tile=int(vision["image_size"]),
        projector_activation="gelu",
        separators_projected=True,
    )


def _vision_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    vision = tower_config(config)
    return {
        "tile": int(vision["image_size"]),
        "patch_size": int(vision["patch_size"]),
        "merge_size": _MERGE,
        "max_tiles": settings.MAX_TILES,
        "num_crops": int(preprocessor.get("num_crops", 16)),
        **settings.colours(preprocessor),
        "resample": "bilinear",
    }


def _text_section(config: Config, max_length: int) -> dict[str, Any]:
    """Beyond the original context the angles are others: a slot ends before."""
    original = int(config.get("original_max_position_embeddings", 4096))
    return settings.text_section(settings.decoder_shape(config), config, min(max_length, original))


def _token_ids(config: Config, generation: Config) -> dict[str, int | list[int] | None]:
    return {"image": int(config.get("image_token_id", _IMAGE_TOKEN)), **settings.end_and_pad(config, generation)}


PHI3_V = Family(
    model_type="phi3_v",
    model_class="Phi3VForCausalLM",
    geometry="phi3_v",
    parts=PartNames(
        vision=f"{_IMAGES}.img_processor.vision_model",
        decoder="model",
        embedding="model.embed_tokens",
        head="lm_head",
        projector=(f"{_IMAGES}.img_projection.0", f"{_IMAGES}.img_projection.2"),
        separators=(f"{_IMAGES}.sub_GN", f"{_IMAGES}.glb_GN"),
    ),
    decoder=DecoderNames(query_key_value="self_attn.qkv_proj", gate_up="mlp.gate_up_proj"),
    tower=clip_names(),
    decoder_shape=settings.decoder_shape,
    tower_shape=_tower_shape,
    vision_section=_vision_section,
    text_section=_text_section,
    token_ids=_token_ids,
    evidence_layer=llama_evidence,
    # The template knows text only; what stands before and behind a picture is encoded on its own, prefix and all.
    prompt_section=lambda config: {"picture_text": "{image}\n", "prefix_after_picture": True},
    native="foveola.weights.phi3_v:Phi3VForCausalLM",
)
"""The record of this family."""
