"""From a request to tokens and patches, in a thread beside the engine's: decode, fit, prompt, resize, pack."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from foveola.artifact import Bundle
from foveola.engine.features import Numbers
from foveola.engine.prepared import Counts, Prepared
from foveola.engine.sequence import Vocabulary
from foveola.engine.text import TokenBytes
from foveola.exchange import ImageUse, Invalid, Request
from foveola.intake import Limits, PromptFormat, PromptTokens, check_context, decode
from foveola.intake.geometries import geometry_of
from foveola.intake.image import Picture
from foveola.intake.views import Geometry, View, counted_positions


class Preparation:
    """Prepares requests for one bundle. Thread-safe; raises what ``foveola.intake`` raises."""

    def __init__(
        self, prompt_format: PromptFormat, geometry: Geometry | None, vocabulary: Vocabulary, limits: Limits
    ) -> None:
        """``geometry`` is None for a model that takes no pictures."""
        self._format = prompt_format
        self._geometry = geometry
        self._limits = limits
        self.vocabulary = vocabulary

    @classmethod
    def open(cls, bundle: Bundle, limits: Limits | None = None) -> Preparation:
        """Read what is needed from a bundle. Raises ``Damaged``."""
        prompt_format = PromptFormat.from_bundle(bundle)
        table = TokenBytes(bundle.read("tokenizer.json").decode())
        vocabulary = Vocabulary(table, frozenset(prompt_format.eos_ids))
        return cls(prompt_format, geometry_of(bundle.model), vocabulary, limits or Limits())

    def __call__(self, request: Request) -> Prepared:
        """Do everything that does not need the graphs."""
        started = time.perf_counter()
        pictures = self._decode(request)
        decoded = time.perf_counter()
        tokens, views = self._prompt(request, pictures)
        check_context(len(tokens.ids), request.sampling.max_tokens, self._format.max_length)
        packed = None
        if self._geometry is None:
            positions, next_position = counted_positions(tokens.ids)
        else:
            positions, next_position = self._geometry.positions(
                tokens.ids, views, image_token_id=self._format.image_token_id
            )
            packed = self._geometry.pack(pictures, views) if pictures else None
        return Prepared(
            ids=tokens.ids,
            positions=positions,
            next_position=next_position,
            visual=tokens.visual,
            packed=packed,
            grids=tokens.grids,
            cells=_cells(views),
            images=_images(views),
            decode_image_s=decoded - started,
            preprocess_s=time.perf_counter() - decoded,
        )

    def count(self, request: Request) -> Counts:
        """The tokens that ``request`` would take. Decodes the pictures, but resizes and runs nothing."""
        tokens, views = self._prompt(request, self._decode(request))
        return Counts(len(tokens.ids), tokens.visual_tokens, _images(views))

    def _decode(self, request: Request) -> list[Picture]:
        # A JPEG of many megapixels is decoded at half or a quarter where that still has twice what the model can use:
        # a third of the time, and the resized picture differs by a fraction of a grey level (tests/intake).
        encoded = [data for turn in request.turns for data in turn.images]
        if self._geometry is None:
            if encoded:
                raise Invalid("This model reads text only and takes no pictures; send text alone.", field="image")
            return []
        enough = self._geometry.enough_pixels
        return [decode(data, self._limits, enough_pixels=enough) for data in encoded]

    def _prompt(self, request: Request, pictures: list[Picture]) -> tuple[PromptTokens, tuple[View, ...]]:
        """The prompt, with the pictures shrunk where that is what it takes to fit the context."""
        draft = self._format.draft(request.turns)
        if self._geometry is None or not pictures:
            return self._format.show(draft, ()), ()
        room = self._format.max_length - request.sampling.max_tokens - draft.text_tokens
        views = self._geometry.fit([picture.original for picture in pictures], room_tokens=room)
        return self._format.show(draft, views), views


def _images(views: Sequence[View]) -> tuple[ImageUse, ...]:
    return tuple(view.use for view in views)


def _cells(views: Sequence[View]) -> Numbers | None:
    """Which cell each visual token belongs to, counted through the grids of all pictures; None: its own, one each."""
    if all(view.cells is None for view in views):
        return None
    cells, before = [], 0
    for view in views:
        own = np.arange(view.use.tokens) if view.cells is None else view.cells
        cells.append(np.where(own < 0, -1, own + before))
        before += view.grid[0] * view.grid[1]
    return np.concatenate(cells)
