"""InternVL: an InternViT tower whose blocks have learnt scales, squares of features in one, a Qwen2 or Llama decoder.

Source: Chen et al. 2024 (arXiv 2404.16821); names and numbers as in transformers'
``InternVLForConditionalGeneration``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveola.exchange import Unsupported
from foveola.family import settings
from foveola.family.base import Config, TowerNames, TowerShape, required
from foveola.family.llava import LLAVA


def _square(value: Any) -> int:
    """A side that config.json gives once, or for height and width alike."""
    sides = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(set(sides)) != 1:
        raise Unsupported(f"config.json has tiles or patches of {sides} pixels; expected squares.")
    return int(sides[0])


def _tower_shape(config: Config) -> TowerShape:
    vision = required(config, "vision_config")
    if vision.get("use_qk_norm"):
        raise Unsupported("config.json has use_qk_norm for the vision tower; supported are towers without it.")
    if config.get("vision_feature_layer", -1) != -1 or not vision.get("use_mean_pooling", True):
        raise Unsupported("config.json takes features of a layer other than the last, which is not supported.")
    heads = int(vision.get("num_attention_heads", 16))
    return TowerShape(
        heads=heads,
        head_dim=int(vision.get("hidden_size", 1024)) // heads,
        merge_size=round(1 / float(config.get("downsample_ratio", 0.5))),
        activation=str(vision.get("hidden_act", "gelu")),
        tile=_square(vision.get("image_size", 448)),
        projector_activation=str(config.get("projector_hidden_act", "gelu")),
    )


def _vision_section(config: Config, preprocessor: Config) -> dict[str, Any]:
    vision = required(config, "vision_config")
    shape = _tower_shape(config)
    return {
        "tile": shape.tile,
        "patch_size": _square(vision.get("patch_size", 14)),
        "merge_size": shape.merge_size,
        "max_tiles": settings.MAX_TILES,
        # its processor cuts into tiles whatever the file says
        "max_tiles_each": int(preprocessor.get("max_patches", 12)),
        "min_tiles_each": int(preprocessor.get("min_patches", 1)),
        "before_picture": "<img>",
        "after_picture": "</img>",
        **settings.colours(preprocessor),
        "resample": settings.resampling(preprocessor),
    }


INTERNVL = replace(
    LLAVA,
    model_type="internvl",
    model_class="InternVLForConditionalGeneration",
    geometry="internvl",
    parts=replace(LLAVA.parts, projector_norm="model.multi_modal_projector.layer_norm"),
    tower=TowerNames(
        patch="embeddings.patch_embeddings.projection",
        rotary=None,
        position="embeddings.position_embeddings",
        class_token="embeddings.cls_token",
        blocks="encoder.layer",
        attention_norm="layernorm_before",
        query="attention.q_proj",
        key="attention.k_proj",
        value="attention.v_proj",
        output="attention.projection_layer",
        mlp_norm="layernorm_after",
        attention_scale="lambda_1",
        mlp_scale="lambda_2",
    ),
    tower_shape=_tower_shape,
    vision_section=_vision_section,
)
"""The record of this family."""
