"""From what arrives to what a model takes: bytes to pixels, pixels to patches, turns to token ids."""

from foveola.intake.budget import check_context, fit_pictures
from foveola.intake.geometry import Packed, VisionConfig, mrope_positions, pack, patchify, smart_resize
from foveola.intake.image import Limits, Picture, decode
from foveola.intake.prompt import PromptFormat, PromptTokens

__all__ = [
    "Limits",
    "Packed",
    "Picture",
    "PromptFormat",
    "PromptTokens",
    "VisionConfig",
    "check_context",
    "decode",
    "fit_pictures",
    "mrope_positions",
    "pack",
    "patchify",
    "smart_resize",
]
