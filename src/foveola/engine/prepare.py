"""From a request to tokens and patches, in a thread beside the engine's: decode, fit, prompt, resize, pack."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.engine.features import Numbers, Selected
from foveola.engine.lru import ByteCache
from foveola.engine.prepared import Counts, Prepared
from foveola.engine.prompts import PromptShelf, VisualPrompt
from foveola.engine.sequence import Vocabulary
from foveola.engine.text import TokenBytes
from foveola.exchange import ImageUse, Invalid, Request
from foveola.intake import Limits, PromptFormat, PromptTokens, check_context, decode
from foveola.intake.geometries import geometry_of
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture
from foveola.intake.prompt import Draft
from foveola.intake.prompt_rows import make_room
from foveola.intake.texture import texture
from foveola.intake.views import Geometry, View, counted_positions

KEPT_BYTES = 64 * 1024 * 1024


class Preparation:
    """Prepares requests for one bundle. Thread-safe; raises what ``foveola.intake`` raises."""

    def __init__(
        self,
        prompt_format: PromptFormat,
        geometry: Geometry | None,
        vocabulary: Vocabulary,
        limits: Limits,
        select: Mapping[str, Any] | None = None,
        kept_bytes: int = KEPT_BYTES,
        prompts: PromptShelf | None = None,
    ) -> None:
        """``geometry`` is None for a model that takes no pictures; ``select`` is that section of model.json. Decoded
        pictures of at most ``kept_bytes`` are kept for whoever asks about them again. Requests may name ``prompts``."""
        self._format = prompt_format
        self._geometry = geometry
        self._limits = limits
        self._select = select
        self._prompts = prompts
        self._pictures: ByteCache[bytes, Picture] = ByteCache(kept_bytes, lambda picture: picture.rgb.nbytes)
        self.vocabulary = vocabulary

    @classmethod
    def open(
        cls,
        bundle: Bundle,
        limits: Limits | None = None,
        kept_bytes: int = KEPT_BYTES,
        prompts_dir: Path | None = None,
    ) -> Preparation:
        """Read what is needed from a bundle; visual prompts lie in ``prompts_dir``. Raises ``Damaged``."""
        prompt_format = PromptFormat.from_bundle(bundle)
        table = TokenBytes(bundle.read("tokenizer.json").decode())
        vocabulary = Vocabulary(table, frozenset(prompt_format.eos_ids))
        geometry = geometry_of(bundle.model)
        prompts = None if prompts_dir is None else PromptShelf.of(prompts_dir, bundle)
        select = bundle.model.get("select")
        return cls(prompt_format, geometry, vocabulary, limits or Limits(), select, kept_bytes, prompts)

    def __call__(self, request: Request) -> Prepared:
        """Do everything that does not need the graphs."""
        started = time.perf_counter()
        keep = self._keep(request)
        pictures = self._decode(request)
        decoded = time.perf_counter()
        prompt = self._visual_prompt(request)
        rows = 0 if prompt is None else len(prompt.rows)
        tokens, views = self._prompt(request, pictures, keep, rows)
        images = _images(views, keep)
        left_out = _left_out(images)
        check_context(len(tokens.ids) + rows - left_out, request.sampling.max_tokens, self._format.max_length)
        packed: Packed | None = None
        seen: tuple[Selected, ...] = ()
        if self._geometry is None:
            positions, next_position = counted_positions(tokens.ids)
        else:
            positions, next_position = self._geometry.positions(
                tokens.ids, views, image_token_id=self._format.image_token_id
            )
            if pictures:
                packed, seen = self._look(request, pictures, views, keep)
        ids, visual = tokens.ids, tokens.visual
        if prompt is not None:
            ids, positions, visual, at = make_room(ids, positions, visual, rows, self._format.pad_id)
            prompt = replace(prompt, at=at)
        return Prepared(
            ids=ids,
            positions=positions,
            next_position=next_position + rows,
            visual=visual,
            packed=packed,
            grids=tokens.grids,
            cells=_cells(views),
            images=images,
            decode_image_s=decoded - started,
            preprocess_s=time.perf_counter() - decoded,
            left_out=left_out,
            parts=tuple(part for view in views for part in view.parts),
            textures=tuple(picture.texture for picture in pictures),
            seen=seen,
            prompt=prompt,
        )

    def _visual_prompt(self, request: Request) -> VisualPrompt | None:
        """The visual prompt that was asked for, as it is on the shelf now. Raises what the shelf does."""
        if not request.visual_prompt:
            return None
        if self._prompts is None:
            raise Invalid(
                "visual_prompt names a prompt, and this engine has none; leave the field out, or set `prompts_dir`.",
                field="visual_prompt",
            )
        if not any(turn.images for turn in request.turns):
            raise Invalid(
                "visual_prompt is for questions about a picture, and there is none; send one, or leave the field out.",
                field="visual_prompt",
            )
        return self._prompts.get(request.visual_prompt)

    def _look(
        self, request: Request, pictures: list[Picture], views: Sequence[View], keep: int | None
    ) -> tuple[Packed | None, tuple[Selected, ...]]:
        """The pictures as the vision graph takes them; or, by whoever runs it elsewhere, what it made of each."""
        assert self._geometry is not None
        packed = self._geometry.pack(pictures, views)
        if keep is not None:
            told = {"keep": np.full(len(packed.segment_ids), keep, np.int64)}
            packed = replace(packed, inputs=(*packed.inputs, *told), others={**packed.others, **told})
        return packed, ()

    def count(self, request: Request) -> Counts:
        """The tokens that ``request`` would take. Decodes the pictures, but resizes and runs nothing."""
        keep, prompt = self._keep(request), self._visual_prompt(request)
        rows = 0 if prompt is None else len(prompt.rows)
        tokens, views = self._prompt(request, self._decode(request), keep, rows)
        images = _images(views, keep)
        left_out = _left_out(images)
        return Counts(len(tokens.ids) + rows - left_out, tokens.visual_tokens - left_out, images)

    def _keep(self, request: Request) -> int | None:
        """How many visual tokens each picture keeps; None for all."""
        asked = request.visual_tokens
        if self._select is None:
            if asked is not None:
                raise Invalid(
                    f"visual_tokens is {asked}, but this model keeps all tokens of a picture; leave the field out, or "
                    "compile the bundle with --select-after.",
                    field="visual_tokens",
                )
            return None
        if asked is not None and asked < 1:
            raise Invalid(f"visual_tokens is {asked}; expected a whole number from 1.", field="visual_tokens")
        own = self._select["tokens"]
        return asked if asked is not None else None if own is None else int(own)

    def _decode(self, request: Request) -> list[Picture]:
        # A JPEG of many megapixels is decoded at half or a quarter where that still has twice what the model can use:
        # a third of the time, and the resized picture differs by a fraction of a grey level (tests/intake).
        encoded = [data for turn in request.turns for data in turn.images]
        if self._geometry is None:
            if encoded:
                raise Invalid("This model reads text only and takes no pictures; send text alone.", field="image")
            return []
        return [self._decoded(data, self._geometry.enough_pixels) for data in encoded]

    def _decoded(self, data: bytes, enough: int) -> Picture:
        """One picture; a file that came before, byte by byte, is not decoded again."""
        name = hashlib.sha256(data).digest()
        picture = self._pictures.get(name)
        if picture is None:
            picture = decode(data, self._limits, enough_pixels=enough)
            width, height = picture.original
            picture = replace(picture, texture=texture(picture.rgb, len(data), width * height))
            self._pictures.put(name, picture)
        return picture

    def _prompt(
        self, request: Request, pictures: list[Picture], keep: int | None, rows: int
    ) -> tuple[PromptTokens, tuple[View, ...]]:
        """The prompt, with the pictures shrunk where that is what it takes to fit the context beside ``rows``."""
        draft = self._format.draft(request.turns)
        if self._geometry is None or not pictures:
            return self._format.show(draft, ()), ()
        room = self._room(request, draft, len(pictures), keep, rows)
        views = self._geometry.fit([picture.original for picture in pictures], room_tokens=room)
        return self._format.show(draft, views), views

    def _room(self, request: Request, draft: Draft, pictures: int, keep: int | None, rows: int) -> int | None:
        """Visual tokens that the context has room for beside the text and the ``rows`` of a visual prompt; None where
        whatever is kept of the pictures fits, whatever their size."""
        left = self._format.max_length - request.sampling.max_tokens - draft.text_tokens - rows
        return None if keep is not None and keep * pictures <= left else left


def _images(views: Sequence[View], keep: int | None) -> tuple[ImageUse, ...]:
    if keep is None:
        return tuple(view.use for view in views)
    return tuple(replace(view.use, kept=sum(min(keep, part) for part in view.parts)) for view in views)


def _left_out(images: Sequence[ImageUse]) -> int:
    """Visual tokens that the vision graph will not give."""
    return sum(image.tokens - image.kept for image in images if image.kept is not None)


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
