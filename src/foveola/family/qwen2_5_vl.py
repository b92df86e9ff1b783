"""Qwen2.5-VL: Qwen2-VL with a tower of gated MLPs and RMS norms, most of whose blocks look through small windows.

Source: Bai et al. 2025, "Qwen2.5-VL Technical Report" (arXiv 2502.13923); names and numbers as in transformers'
``Qwen2_5_VLForConditionalGeneration``. A patch sees its own window because the mask says so; nothing is reordered.
"""

from __future__ import annotations

from dataclasses import replace

from foveola.family.base import Config, TowerNames, TowerShape, required
from foveola.family.qwen2_vl import QWEN2_VL


def _tower_shape(config: Config) -> TowerShape:
    vision = required(config, "vision_config")
    heads = int(required(vision, "num_heads"))
    head_dim = int(required(vision, "hidden_size")) // heads
    merge, patch = int(vision.get("spatial_merge_size", 2)), int(vision.get("patch_size", 14))
    return TowerShape(
        heads=heads,
        head_dim=head_dim,
        merge_size=merge,
        activation=str(vision.get("hidden_act", "silu")),
        rotary_axes=(0,) * (head_dim // 4) + (1,) * (head_dim // 4),
        window=int(vision.get("window_size", 112)) // merge // patch * merge,
        whole_blocks=tuple(int(block) for block in vision.get("fullatt_block_indexes", (7, 15, 23, 31))),
    )


QWEN2_5_VL = replace(
    QWEN2_VL,
    model_type="qwen2_5_vl",
    model_class="Qwen2_5_VLForConditionalGeneration",
    tower=TowerNames(gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj"),
    tower_shape=_tower_shape,
)
"""The record of this family."""
