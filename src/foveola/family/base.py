"""The shape of one family's record.

Names are dotted paths inside the transformers model, relative to what their comment says. They are looked up with
``torch.nn.Module.get_submodule``; a path that does not exist is an error of the record, found by its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foveola.exchange import Damaged

Config = Mapping[str, Any]
"""A parsed JSON file of a checkpoint (config.json, preprocessor_config.json, generation_config.json)."""


def required(config: Config, key: str) -> Any:
    """``config[key]`` of a config.json. Raises ``Damaged`` naming the key where it is missing."""
    value = config.get(key)
    if value is None:
        raise Damaged(f"config.json lacks {key!r}, which a checkpoint of this family has. Copy the checkpoint whole.")
    return value


@dataclass(frozen=True, slots=True)
class PartNames:
    """The four parts of a model, from its root."""

    vision: str
    decoder: str
    embedding: str
    head: str


@dataclass(frozen=True, slots=True)
class DecoderNames:
    """The inside of a pre-norm decoder with gated MLP: first from the decoder, then from one of its layers."""

    layers: str = "layers"
    norm: str = "norm"
    rotary: str = "rotary_emb"
    # from one layer
    input_norm: str = "input_layernorm"
    query: str = "self_attn.q_proj"
    key: str = "self_attn.k_proj"
    value: str = "self_attn.v_proj"
    output: str = "self_attn.o_proj"
    mlp_norm: str = "post_attention_layernorm"
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"


@dataclass(frozen=True, slots=True)
class TowerNames:
    """The inside of a vision tower over packed patches: first from the tower, then from one of its blocks."""

    patch: str = "patch_embed.proj"
    rotary: str = "rotary_pos_emb"
    blocks: str = "blocks"
    merger_norm: str = "merger.ln_q"
    merger_up: str = "merger.mlp.0"
    merger_down: str = "merger.mlp.2"
    # from one block
    attention_norm: str = "norm1"
    query_key_value: str = "attn.qkv"
    output: str = "attn.proj"
    mlp_norm: str = "norm2"
    up: str = "mlp.fc1"
    down: str = "mlp.fc2"


@dataclass(frozen=True, slots=True)
class TowerShape:
    """Numbers of a packed vision tower that the weights alone do not tell."""

    heads: int
    head_dim: int
    merge_size: int
    activation: str
    rotary_axes: tuple[int, ...]
    """For each rotary frequency: 0 turns with the patch's row, 1 with its column. Length ``head_dim // 2``."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Numbers of a decoder that the weights alone do not tell."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    activation: str
    rotary_axes: tuple[int, ...] | None
    """For each rotary frequency the position axis (0 time, 1 row, 2 column) that turns it, length
    ``head_dim // 2``; None where positions have one axis only."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models: everything that is not the same for all of them.

    ``model_type`` is what config.json says. ``model_class`` names the class in transformers. The functions turn the
    checkpoint's JSON files into numbers and into the sections of a bundle's model.json.
    """

    model_type: str
    model_class: str
    geometry: str
    parts: PartNames
    decoder: DecoderNames
    tower: TowerNames
    decoder_shape: Callable[[Config], DecoderShape]
    tower_shape: Callable[[Config], TowerShape]
    vision_section: Callable[[Config, Config], dict[str, Any]]
    """(config, preprocessor) -> model.json ``vision``."""
    text_section: Callable[[Config, int], dict[str, Any]]
    """(config, KV slot length) -> model.json ``text``."""
    token_ids: Callable[[Config, Config], dict[str, int | list[int] | None]]
    """(config, generation config) -> role -> id; strings come from tokenizer.json."""
    evidence_layer: Callable[[Config], int]
    default_system: str | None = None
