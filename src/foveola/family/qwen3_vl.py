"""Qwen3-VL and its mixture of experts: interleaved M-RoPE, normalised queries and keys, DeepStack.

Source: Qwen3-VL Technical Report 2025 (arXiv 2511.21631); Meng et al. 2024, "DeepStack" (arXiv 2406.04334); names and
numbers as in transformers' ``Qwen3VLForConditionalGeneration`` and ``Qwen3VLMoeForConditionalGeneration``.

DeepStack adds features of some blocks of the tower to the results of the decoder's first layers. Here a visual token's
embedding is as wide as all of them together, [feature, deep 0, deep 1, …], zero behind a text token's own; so that
whatever moves, keeps, selects or caches features moves all of them, and the decoder adds without an index.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveola.family import settings
from foveola.family.base import Config, DecoderNames, DecoderShape, TowerNames, TowerShape, required
from foveola.family.qwen2_vl import QWEN2_VL, mrope_sections


def _tower_shape(config: Config) -> TowerShape:
    vision = required(config, "vision_config")
    heads = int(required(vision, "num_heads"))
    head_dim = int(required(vision, "hidden_size")) // heads
    return TowerShape(
        heads=heads,
        head_dim=head_dim,
        merge_size=int(vision.get("spatial_merge_size", 2)),
        activation=str(vision.get("hidden_act", "gelu_pytorch_tanh")),
        rotary_axes=(0,) * (head_dim // 4) + (1,) * (head_dim // 4),
        deepstack=tuple(int(block) for block in vision.get("deepstack_visual_indexes", (8, 16, 24))),
    )


def _decoder_shape(config: Config) -> DecoderShape:
    text = settings.text_config(config)
    shape = settings.decoder_shape(config)
    experts = int(text.get("num_experts") or text.get("num_local_experts") or 0)
    step = int(text.get("decoder_sparse_step", 1))
    dense = {int(layer) for layer in text.get("mlp_only_layers") or ()}
    dense |= {layer for layer in range(shape.layers) if (layer + 1) % step}
    return replace(
        shape,
        rotary_axes=_interleaved(mrope_sections(text, shape.head_dim, (24, 20, 20))),
        deepstack=len(_tower_shape(config).deepstack),
        experts=experts,
        experts_per_token=int(text.get("num_experts_per_tok") or 0) if experts else 0,
        dense_layers=tuple(sorted(dense)) if experts else (),
    )


def _interleaved(sections: list[int]) -> tuple[int, ...]:
    """Time, row, column, time, … for as many as rows and columns have; the rest is time's."""
    axes = [0] * sum(sections)
    for axis in (1, 2):
        for index in range(axis, 3 * sections[axis], 3):
            axes[index] = axis
    return tuple(axes)


def _text_section(config: Config, max_length: int) -> dict[str, Any]:
    return settings.text_section(_decoder_shape(config), config, max_length)


QWEN3_VL = replace(
    QWEN2_VL,
    model_type="qwen3_vl",
    model_class="Qwen3VLForConditionalGeneration",
    geometry="qwen3_vl",
    decoder=DecoderNames(query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
    tower=TowerNames(
        position="pos_embed",
        merger_norm="merger.norm",
        merger_up="merger.linear_fc1",
        merger_down="merger.linear_fc2",
        up="mlp.linear_fc1",
        down="mlp.linear_fc2",
        deepstack="deepstack_merger_list",
    ),
    decoder_shape=_decoder_shape,
    tower_shape=_tower_shape,
    text_section=_text_section,
)
"""The record of the dense models."""

QWEN3_VL_MOE = replace(
    QWEN3_VL,
    model_type="qwen3_vl_moe",
    model_class="Qwen3VLMoeForConditionalGeneration",
    decoder=replace(QWEN3_VL.decoder, router="mlp.gate", experts="mlp.experts"),
)
"""The record of the mixtures of experts."""
