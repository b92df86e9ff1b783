"""What may be asked of a compilation, resolved and checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from foveola.exchange import Invalid
from foveola.weights.formats import Format, Storage, parse_storage

MAX_SIDE_PX = 8192
PROFILES = ("ort", "portable")
WIDE_VISION_MIB = 1024
"""ONNX Runtime holds five times as much while it widens (``docs/decisions/0015-large-towers-stay-narrow.md``)."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a checkpoint becomes a bundle.

    vision, decoder, head, embedding  storage of the weights of each part
    wide_vision_mib  a tower that is widened at load (int8@load) stays narrow where it would take more than so many MiB
                     in fp32; None widens any
    overrides        pattern of module paths -> storage, in order; the last match counts
    image_px         (height, width) of the largest picture; None keeps the checkpoint's limit
    text_length      tokens of the chunk that the parity gate checks besides its own shapes; None for its own only
    max_length       tokens of a key/value slot: prompt and answer together
    evidence_layer   decoder layer whose attention is given out; None for the family's choice
    select_after     blocks of the vision tower that see every patch; behind them each picture keeps as many visual
                     tokens as the request says, and merges the others into them; None builds no such place
    visual_tokens    how many a picture keeps where the request does not say; None for all
    profile          ort: operators of ONNX Runtime, fastest there; portable: operators of the ONNX standard only
    """

    vision: Storage = "fp32"
    decoder: Storage = "fp32"
    head: Storage = "fp32"
    embedding: Storage = "fp32"
    wide_vision_mib: int | None = None
    overrides: Mapping[str, Storage] = field(default_factory=dict)
    image_px: tuple[int, int] | None = None
    text_length: int | None = None
    max_length: int = 4096
    evidence_layer: int | None = None
    select_after: int | None = None
    visual_tokens: int | None = None
    profile: str = "ort"

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise Invalid(f"profile is {self.profile!r}; expected {' or '.join(PROFILES)}.", field="profile")
        if self.visual_tokens is not None and self.select_after is None:
            raise Invalid(
                f"visual_tokens is {self.visual_tokens}, but nothing selects them; say behind how many blocks of the "
                "vision tower with --select-after.",
                field="select_after",
            )
        if self.visual_tokens is not None and self.visual_tokens < 1:
            raise Invalid(f"visual_tokens is {self.visual_tokens}; expected at least 1.", field="visual_tokens")
        if self.image_px is not None and not all(1 <= side <= MAX_SIDE_PX for side in self.image_px):
            raise Invalid(
                f"the picture is {self.image_px[0]} x {self.image_px[1]} pixels; expected sides of 1 to {MAX_SIDE_PX}.",
                field="input_shape",
            )
        if not 16 <= self.max_length <= 131072:
            raise Invalid(f"max_length is {self.max_length}; expected 16 to 131072 tokens.", field="max_length")
        if self.text_length is not None and not 1 <= self.text_length <= self.max_length:
            raise Invalid(
                f"seq_len is {self.text_length}; expected 1 to {self.max_length}, the length of a slot "
                "(raise --max-length with it).",
                field="seq_len",
            )

    @classmethod
    def of_precision(cls, precision: str, *, block: int = 32, accuracy_level: int = 4, **others: Any) -> CompileOptions:
        """The usual mixture for ``precision`` fp32, fp16, int8 or int4; ``others`` are fields that differ from it.

        With int4 the head stays at 8 bits (one wrong token is a wrong answer, and it is a small part of the bytes);
        so does the embedding. The vision tower, which always multiplies many rows, is stored in 8 bits and widened at
        load where that takes no more than ``WIDE_VISION_MIB``, as long as no other storage is asked for it;
        ``int8@load`` stores everything so: a model that fits the cache answers fastest with it.
        """
        base = parse_storage(precision, block=block, accuracy_level=accuracy_level)
        fields: dict[str, Any] = dict.fromkeys(("vision", "decoder", "head", "embedding"), base)
        if isinstance(base, Format):
            careful = replace(base, bits=8)
            fields |= {"head": careful, "embedding": careful, "vision": Format(8, base.block, expand=True)}
            if not base.expand and others.get("vision") is None:
                fields["wide_vision_mib"] = WIDE_VISION_MIB
        return cls(**(fields | {name: value for name, value in others.items() if value is not None}))

    def for_tower(self, weights: int) -> CompileOptions:
        """These options for a tower of so many ``weights``: one that is too large to be widened stays narrow.

        MatMulNBits then unpacks it anew for every picture and multiplies in fp32 (level 1).
        """
        most = self.wide_vision_mib
        resolved = replace(self, wide_vision_mib=None)
        if most is None or not isinstance(self.vision, Format) or 4 * weights <= most * 2**20:
            return resolved
        return replace(resolved, vision=replace(self.vision, expand=False, accuracy_level=1))

    def to_json(self) -> dict[str, Any]:
        """These options as plain JSON data, for the lineage."""
        return {
            "vision": str(self.vision),
            "decoder": str(self.decoder),
            "head": str(self.head),
            "embedding": str(self.embedding),
            "overrides": {pattern: str(storage) for pattern, storage in self.overrides.items()},
            "image_px": None if self.image_px is None else list(self.image_px),
            "text_length": self.text_length,
            "max_length": self.max_length,
            "evidence_layer": self.evidence_layer,
            "select_after": self.select_after,
            "visual_tokens": self.visual_tokens,
            "profile": self.profile,
        }


def parse_input_shape(text: str) -> tuple[int, int]:
    """``1,3,384,384`` (pictures, channels, height, width) or ``384,384`` -> (height, width) in pixels."""
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdigit() for part in parts) or len(parts) not in (2, 4):
        raise Invalid(
            f"input shape is {text!r}; expected pictures,channels,height,width as in 1,3,384,384.", field="input_shape"
        )
    numbers = [int(part) for part in parts]
    if len(numbers) == 4 and numbers[:2] != [1, 3]:
        raise Invalid(
            f"input shape is {text!r}; expected it to begin with 1,3: one picture of three channels. "
            "The number of pictures is dynamic and needs no setting.",
            field="input_shape",
        )
    return numbers[-2], numbers[-1]
