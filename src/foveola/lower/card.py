"""model.json of a bundle: what the edge needs to know about a model, from the checkpoint's JSON files alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from foveola.artifact import Checkpoint
from foveola.exchange import Damaged, Invalid, Turn, Unsupported
from foveola.family import Family
from foveola.intake.prompt import PromptFormat
from foveola.lower.options import CompileOptions
from foveola.lower.prompts import prompt_tokens, read_tokenizer, template_variables

GRAPHS = {"vision": "vision.onnx", "embed": "embed.onnx", "decoder": "decoder.onnx"}


def model_section(checkpoint: Checkpoint, family: Family, options: CompileOptions) -> dict[str, Any]:
    """The content of model.json: everything that the edge needs to know about this model, as data."""
    config = checkpoint.config
    template = checkpoint.chat_template()
    if template is None:
        raise Damaged("chat_template.jinja is missing, and tokenizer_config.json has no chat_template either.")
    vision = family.vision_section(config, checkpoint.side_file("preprocessor") or {})
    if options.image_px is not None and "max_pixels" in vision:
        side = vision["patch_size"] * vision["merge_size"]
        vision["max_pixels"] = math.prod(side * math.ceil(length / side) for length in options.image_px)
        vision["min_pixels"] = min(vision["min_pixels"], vision["max_pixels"])
    text = family.text_section(config, options.max_length)
    if options.text_length is not None and options.text_length > text["max_length"]:
        raise Invalid(
            f"seq_len is {options.text_length}; this model reads at most {text['max_length']} tokens.", field="seq_len"
        )
    return {
        "family": family.model_type,
        "geometry": family.geometry,
        "vision": vision,
        "text": text,
        "tokens": prompt_tokens(checkpoint, family),
        "prompt": family.prompt_section(config) | {"variables": template_variables(checkpoint)},
        "evidence_layer": _evidence_layer(family, config, options),
        "dtype": "float32",
        "profile": options.profile,
        "chat_template": template,
        "default_system": family.default_system,
        **_select_section(family, config, options),
        "graphs": {role: file for role, file in GRAPHS.items() if family.sees or role != "vision"},
        "plan": {"threads": None},
    }


def _select_section(family: Family, config: Any, options: CompileOptions) -> dict[str, Any]:
    """``{"select": ...}`` where the vision graph is to have a place of selection. Raises ``Unsupported``."""
    if options.select_after is None:
        return {}
    shape = family.tower_shape(config)
    if shape.tile or shape.window or shape.deepstack:
        raise Unsupported(
            f"visual tokens cannot be selected in the vision tower of {family.model_type}, which has tiles, windows or "
            "outputs of several layers; leave --select-after out."
        )
    return {"select": {"after": options.select_after, "tokens": options.visual_tokens}}


def _evidence_layer(family: Family, config: Any, options: CompileOptions) -> int | None:
    """The layer whose attention is shown; none in a model without pictures, unless one was asked for."""
    if not family.sees and options.evidence_layer is None:
        return None
    layers = family.decoder_shape(config).layers
    chosen = family.evidence_layer(config) if options.evidence_layer is None else options.evidence_layer
    if not 0 <= chosen < layers:
        raise Invalid(f"evidence_layer is {chosen}; the decoder has layers 0 to {layers - 1}.", field="evidence_layer")
    return chosen


def check_prompt(checkpoint: Checkpoint, card: Mapping[str, Any]) -> None:
    """Write one question, with a picture where the model sees, as the engine will. Raises ``Damaged``.

    A chat template that does not fit, never ends or reaches for what is not its own is found here, not by a client.
    """
    pictures = (b"",) if "vision" in card["graphs"] else ()
    try:
        PromptFormat(card, read_tokenizer(checkpoint)).draft((Turn("user", "What is this?", pictures),))
    except Invalid as refusal:
        raise Damaged(f"The checkpoint's chat template fails at one plain question. {refusal.message}") from None
    except Damaged as damage:
        # of a bundle the file would be model.json; here it was not written yet
        raise Damaged(damage.message.replace("model.json: chat_template", "The checkpoint's chat_template")) from None
