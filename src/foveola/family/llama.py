"""Llama and what is built like it (SmolLM2, Mistral): text only, positions count tokens.

Source: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models" (arXiv 2302.13971); names as in
transformers' ``LlamaForCausalLM``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveola.family import settings
from foveola.family.base import Config, DecoderNames, Family, PartNames, TowerNames, TowerShape


def llama_text(config: Config, max_length: int) -> dict[str, Any]:
    """model.json ``text`` of a decoder of the Llama kind."""
    return settings.text_section(settings.decoder_shape(config), config, max_length)


def llama_evidence(config: Config) -> int:
    """See ``settings.evidence_layer``."""
    return settings.evidence_layer(settings.decoder_shape(config).layers)


def _no_tower(config: Config) -> TowerShape:
    raise ValueError(f"a {config.get('model_type')} has no vision tower")


LLAMA = Family(
    model_type="llama",
    model_class="LlamaForCausalLM",
    geometry="text",
    parts=PartNames(vision="", decoder="model", embedding="model.embed_tokens", head="lm_head"),
    decoder=DecoderNames(),
    tower=TowerNames(),
    decoder_shape=settings.decoder_shape,
    tower_shape=_no_tower,
    vision_section=lambda config, preprocessor: {},
    text_section=llama_text,
    token_ids=settings.end_and_pad,
    evidence_layer=llama_evidence,
)
"""The record of this family."""

MISTRAL = replace(LLAMA, model_type="mistral", model_class="MistralForCausalLM")
"""The same under another name, with a sliding window that a slot is never longer than."""
