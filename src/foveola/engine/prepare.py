"""From a request to tokens and patches, in a thread beside the engine's: decode, fit, prompt, resize, pack."""

from __future__ import annotations

import time

import numpy as np

from foveola.artifact import Bundle
from foveola.engine.prepared import Counts, Prepared
from foveola.engine.sequence import Vocabulary
from foveola.engine.text import TokenBytes
from foveola.exchange import ImageUse, Request
from foveola.intake import (
    Limits,
    PromptFormat,
    PromptTokens,
    VisionConfig,
    check_context,
    decode,
    fit_pictures,
    mrope_positions,
    pack,
)
from foveola.intake.image import Picture


class Preparation:
    """Prepares requests for one bundle. Thread-safe; raises what ``foveola.intake`` raises."""

    def __init__(
        self, prompt_format: PromptFormat, vision: VisionConfig, vocabulary: Vocabulary, limits: Limits
    ) -> None:
        self._format = prompt_format
        self._vision = vision
        self._limits = limits
        self.vocabulary = vocabulary

    @classmethod
    def open(cls, bundle: Bundle, limits: Limits | None = None) -> Preparation:
        """Read what is needed from a bundle. Raises ``Damaged``."""
        prompt_format = PromptFormat.from_bundle(bundle)
        table = TokenBytes(bundle.read("tokenizer.json").decode())
        vocabulary = Vocabulary(table, frozenset(prompt_format.eos_ids))
        return cls(prompt_format, VisionConfig.from_model(bundle.model["vision"]), vocabulary, limits or Limits())

    def __call__(self, request: Request) -> Prepared:
        """Do everything that does not need the graphs."""
        started = time.perf_counter()
        pictures = self._decode(request)
        decoded = time.perf_counter()
        tokens, images = self._prompt(request, pictures)
        check_context(len(tokens.ids), request.sampling.max_tokens, self._format.max_length)
        positions, next_position = mrope_positions(
            tokens.ids,
            tokens.grids,
            image_token_id=self._format.image_token_id,
            merge_size=self._vision.merge_size,
        )
        merge = self._vision.merge_size
        return Prepared(
            ids=tokens.ids,
            positions=positions,
            next_position=next_position,
            visual=np.concatenate([np.arange(0), *(np.arange(start, end) for start, end in tokens.image_spans)]),
            packed=pack(pictures, self._vision, images) if pictures else None,
            grids=tuple((rows // merge, columns // merge) for rows, columns in tokens.grids),
            images=images,
            decode_image_s=decoded - started,
            preprocess_s=time.perf_counter() - decoded,
        )

    def count(self, request: Request) -> Counts:
        """The tokens that ``request`` would take. Decodes the pictures, but resizes and runs nothing."""
        tokens, images = self._prompt(request, self._decode(request))
        return Counts(len(tokens.ids), tokens.visual_tokens, images)

    def _decode(self, request: Request) -> list[Picture]:
        # A JPEG of many megapixels is decoded at half or a quarter where that still has twice what the model can use:
        # a third of the time, and the resized picture differs by a fraction of a grey level (tests/intake).
        enough = 2 * self._vision.max_pixels
        encoded = (data for turn in request.turns for data in turn.images)
        return [decode(data, self._limits, enough_pixels=enough) for data in encoded]

    def _prompt(self, request: Request, pictures: list[Picture]) -> tuple[PromptTokens, tuple[ImageUse, ...]]:
        """The prompt, with the pictures shrunk where that is what it takes to fit the context."""
        draft = self._format.draft(request.turns)
        if not pictures:
            return self._format.expand(draft, ()), ()
        room = self._format.max_length - request.sampling.max_tokens - draft.text_tokens
        images = fit_pictures([picture.original for picture in pictures], self._vision, room_tokens=room)
        side = self._vision.patch_size
        grids = [(image.used[1] // side, image.used[0] // side) for image in images]
        return self._format.expand(draft, grids), images
