"""LLaVA-1.5 and LLaVA-NeXT: a CLIP or SigLIP tower over square tiles, two layers, a decoder of the Llama kind.

Sources: Liu et al. 2023, "Improved Baselines with Visual Instruction Tuning" (arXiv 2310.03744), and LLaVA-NeXT
(2024); names and numbers as in transformers' ``LlavaForConditionalGeneration`` and
``LlavaNextForConditionalGeneration``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveola.exchange import Unsupported
from foveola.family import settings
from foveola.family.base import Config, DecoderNames, Family, PartNames, TowerNames, TowerShape, required
from foveola.family.llama import llama_evidence, llama_text

_CLIP, _SIGLIP = "clip_vision_model", "siglip_vision_model"


def clip_names(root: str = "") -> TowerNames:
    """The inside of transformers' ``CLIPVisionModel``."""
    return TowerNames(
        patch=f"{root}embeddings.patch_embedding",
        rotary=None,
        position=f"{root}embeddings.position_embedding",
        class_token=f"{root}embeddings.class_embedding",
        first_norm=f"{root}pre_layrnorm",
        blocks=f"{root}encoder.layers",
        attention_norm="layer_norm1",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.out_proj",
        mlp_norm="layer_norm2",
    )


def tile_shape(config: Config) -> TowerShape:
    """A tower of which the features of one block count, its class token dropped."""
    vision = settings.vision_config(config)
    kind = vision.get("model_type")
    strategy = config.get("vision_feature_select_strategy", "default")
    if (kind, strategy) not in ((_CLIP, "default"), (_SIGLIP, "full")):
        raise Unsupported(
            f"config.json has a {kind} with vision_feature_select_strategy {strategy!r}; supported are {_CLIP} with "
            f"'default' and {_SIGLIP} with 'full'."
        )
    heads = int(required(vision, "num_attention_heads"))
    return TowerShape(
        heads=heads,
        head_dim=int(required(vision, "hidden_size")) // heads,
        merge_size=1,
        activation=str(vision.get("hidden_act")),
        blocks=settings.used_blocks(vision, config.get("vision_feature_layer", -2)),
        tile=int(required(vision, "image_size")),
        projector_activation=str(config.get("projector_hidden_act", "gelu")),
    )


def _tiles(config: Config, preprocessor: Config) -> dict[str, Any]:
    vision = settings.vision_config(config)
    return {
        "tile": int(required(vision, "image_size")),
        "patch_size": int(required(vision, "patch_size")),
        "merge_size": 1,
        "max_tiles": settings.MAX_TILES,
        **settings.colours(preprocessor),
        "resample": settings.resampling(preprocessor),
    }


def _square_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    section = _tiles(config, preprocessor)
    size = preprocessor.get("size") or {"shortest_edge": section["tile"]}
    if isinstance(size, int):
        size = {"shortest_edge": size}
    if preprocessor.get("do_center_crop", True) and "shortest_edge" in size:
        section["shortest_edge"] = int(size["shortest_edge"])
    return section | {"pad_to_square": bool(preprocessor.get("do_pad", False))}


def _anyres_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    pinpoints = config.get("image_grid_pinpoints") or preprocessor.get("image_grid_pinpoints")
    return _tiles(config, preprocessor) | {
        "pinpoints": required({"image_grid_pinpoints": pinpoints}, "image_grid_pinpoints")
    }


LLAVA = Family(
    model_type="llava",
    model_class="LlavaForConditionalGeneration",
    geometry="llava",
    parts=PartNames(
        vision="model.vision_tower",
        decoder="model.language_model",
        embedding="model.language_model.embed_tokens",
        head="lm_head",
        projector=("model.multi_modal_projector.linear_1", "model.multi_modal_projector.linear_2"),
    ),
    decoder=DecoderNames(),
    tower=clip_names(),
    decoder_shape=settings.decoder_shape,
    tower_shape=tile_shape,
    vision_section=_square_section,
    text_section=llama_text,
    token_ids=settings.token_ids,
    evidence_layer=llama_evidence,
)
"""The record of LLaVA-1.5."""

LLAVA_NEXT = replace(
    LLAVA,
    model_type="llava_next",
    model_class="LlavaNextForConditionalGeneration",
    geometry="llava_next",
    parts=replace(LLAVA.parts, separators=("model.image_newline",)),
    vision_section=_anyres_section,
)
"""The record of LLaVA-NeXT (1.6)."""
