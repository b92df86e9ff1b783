"""The language half: prompts are prepared here, pictures are seen by another service.

Of a picture only the header is read, so that the prompt can be laid out; decoding, resizing and the vision graph are
the other service's. What it sends back is held against what was expected: the weights, the sizes, the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foveola.engine.features import Selected
from foveola.engine.prepare import Preparation
from foveola.engine.travel import Look, Sights
from foveola.exchange import Invalid, Request, Unavailable
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture, measure
from foveola.intake.views import View

Ask = Callable[[Look], Sights]
"""Asks a vision service; blocks. Raises the refusals of its own, or ``Unavailable``."""


class AfarPreparation(Preparation):
    """Prepares requests with features from elsewhere."""

    ask: Ask
    version: str = ""

    def asking(self, ask: Ask, version: str) -> AfarPreparation:
        """Set who is asked, and which weights are expected there. Returns itself."""
        self.ask, self.version = ask, version
        return self

    def _decode(self, request: Request) -> list[Picture]:
        encoded = [data for turn in request.turns for data in turn.images]
        if encoded and self._geometry is None:
            raise Invalid("This model reads text only and takes no pictures; send text alone.", field="image")
        headers = [measure(data, self._limits) for data in encoded]
        nothing = np.zeros((0, 0, 3), np.uint8)
        return [Picture(nothing, header.upright_size, header.format) for header in headers]

    def _look(
        self, request: Request, pictures: list[Picture], views: Sequence[View], keep: int | None
    ) -> tuple[Packed | None, tuple[Selected, ...]]:
        draft, prompt = self._format.draft(request.turns), self._visual_prompt(request)
        room = self._room(request, draft, len(pictures), keep, 0 if prompt is None else len(prompt.rows))
        encoded = tuple(data for turn in request.turns for data in turn.images)
        sights = self.ask(Look(encoded, room, keep, request.span))
        self._check(sights, views)
        return None, tuple(sight.seen for sight in sights.sights)

    def _check(self, sights: Sights, views: Sequence[View]) -> None:
        if sights.version != self.version:
            raise Unavailable(
                f"The vision service has the weights {sights.version[:12]}, and {self.version[:12]} are expected; "
                "deploy both from the same bundle."
            )
        got: list[Any] = [(sight.used, sight.tokens) for sight in sights.sights]
        if got != [(view.use.used, view.use.tokens) for view in views]:
            raise Unavailable("The vision service saw the pictures in other sizes; deploy both from the same version.")
