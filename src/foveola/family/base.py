"""The shape of one family's record.

Names are dotted paths inside the transformers model, relative to what their comment says. They are looked up with
``torch.nn.Module.get_submodule``; a path that does not exist is an error of the record, found by its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    """The parts of a model, from its root.

    ``vision`` is empty where there is none. ``projector`` is the way from the tower to the decoder where it lies
    outside the tower, first layer first; ``projector_norm`` the normalisation before it, ``separators`` the learnt
    rows that stand between the features of one picture.
    """

    vision: str
    decoder: str
    embedding: str
    head: str
    projector: tuple[str, ...] = ()
    projector_norm: str | None = None
    separators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecoderNames:
    """The inside of a pre-norm decoder with gated MLP: first from the decoder, then from one of its layers.

    Names that are None are of parts that not every family has. ``query_key_value`` and ``gate_up`` are layers that
    hold several in one, and then stand instead of them; ``router`` and ``experts`` stand instead of gate, up and down
    in the layers that have them.
    """

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
    query_key_value: str | None = None
    gate_up: str | None = None
    query_norm: str | None = None
    key_norm: str | None = None
    router: str | None = None
    experts: str | None = None

    @property
    def attention_inputs(self) -> tuple[str, ...]:
        """The layers whose outputs side by side are query, key and value."""
        return (self.query_key_value,) if self.query_key_value else (self.query, self.key, self.value)


@dataclass(frozen=True, slots=True)
class TowerNames:
    """The inside of a vision tower: first from the tower, then from one of its blocks.

    Names that are None are of parts that not every tower has: a tower over packed patches has ``rotary`` and a merger
    of its own, one over square tiles ``position`` and perhaps a class token; ``query``, ``key`` and ``value`` stand
    instead of ``query_key_value``, ``gate`` makes the MLP a gated one, ``attention_scale`` and ``mlp_scale`` are
    learnt factors of a block's two results.
    """

    patch: str = "patch_embed.proj"
    rotary: str | None = "rotary_pos_emb"
    position: str | None = None
    class_token: str | None = None
    first_norm: str | None = None
    last_norm: str | None = None
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
    query: str | None = None
    key: str | None = None
    value: str | None = None
    gate: str | None = None
    attention_scale: str | None = None
    mlp_scale: str | None = None
    # from one of the tower's further mergers (deepstack)
    deepstack: str | None = None
    deepstack_norm: str = "norm"
    deepstack_up: str = "linear_fc1"
    deepstack_down: str = "linear_fc2"

    @property
    def attention_inputs(self) -> tuple[str, ...]:
        """The layers whose outputs side by side are query, key and value."""
        if self.query and self.key and self.value:
            return (self.query, self.key, self.value)
        return (self.query_key_value,)


@dataclass(frozen=True, slots=True)
class TowerShape:
    """Numbers of a vision tower that the weights alone do not tell.

    Patches that become one feature lie in squares of ``merge_size``.
    """

    heads: int
    head_dim: int
    merge_size: int
    activation: str
    rotary_axes: tuple[int, ...] = ()
    """For each rotary frequency: 0 turns with the patch's row, 1 with its column. Length ``head_dim // 2``."""
    blocks: int | None = None
    """How many blocks count; None for all of them."""
    window: int = 0
    """Side, in patches, of the square that a patch sees; 0 for the whole picture."""
    whole_blocks: tuple[int, ...] = ()
    """The blocks whose patches see the whole picture in spite of ``window``."""
    deepstack: tuple[int, ...] = ()
    """The blocks whose results go, merged, into the first layers of the decoder."""
    tile: int = 0
    """Side of a tile in pixels; 0 for a tower over packed patches."""
    projector_activation: str = "gelu"
    separators_projected: bool = False
    """Whether the learnt separators pass through the projector, as the features do."""


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
    deepstack: int = 0
    """To how many of the first layers' results features of the tower are added."""
    experts: int = 0
    experts_per_token: int = 0
    dense_layers: tuple[int, ...] = ()
    """The layers without experts, where there are experts at all."""

    @property
    def axes(self) -> int:
        """Number of axes of a position."""
        return 1 + max(self.rotary_axes) if self.rotary_axes else 1

    @property
    def embedding(self) -> int:
        """Width of what enters the decoder: its own width, and as much again for every layer of deepstack."""
        return self.hidden * (1 + self.deepstack)


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
    prompt_section: Callable[[Config], dict[str, Any]] = field(default=lambda config: {})
    """(config) -> model.json ``prompt``: how pictures stand in a prompt, beyond one control token each."""
    native: str | None = None
    """``module:function`` that builds the model where transformers has no class for it."""

    @property
    def sees(self) -> bool:
        """Whether the family has a vision tower."""
        return bool(self.parts.vision)
