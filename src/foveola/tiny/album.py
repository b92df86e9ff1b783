"""Pictures that the vision tower's blocks saw once, asked about again and again while they rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from foveola.tiny.batches import Drawn, Ease, Grid, Group, Source
from foveola.tiny.scenes import Scene

# Groups of each kind and size that are kept, and how often one is asked about before another takes its place.
ROOM = 40
USES = 4


class Album:
    """Draws groups as ``Source`` does, with ``states`` in place of patches. What is drawn depends on what is kept, so
    that a run that goes on after a stop has other pictures than one that was never stopped.

    ``look`` says what the tower's blocks see in a group: [B, N, width]. It is kept as float16: about 40 kB a picture.
    """

    def __init__(self, source: Source, look: Callable[[Group], Tensor]) -> None:
        self._source, self._look = source, look
        self._pages = dict[tuple[str, Grid], list[tuple[Drawn, Tensor]]]()

    def group(
        self, kind: str, grid: Grid, count: int, seed: Sequence[int], *, turns: int = 4, ease: Ease | None = None
    ) -> Group:
        """As ``Source.group``: a group that is kept, with new questions, or a new one."""
        rng = np.random.default_rng(list(seed))
        talk = random.Random(int(rng.integers(2**62)))
        kept = self._pages.setdefault((kind, grid), [])
        if len(kept) == ROOM and rng.random() > 1 / USES:
            drawn, states = kept[int(rng.integers(ROOM))]
            return replace(self._source.ask(grid, drawn, turns, talk), states=states.float())
        drawn = self._source.draw(kind, grid, count, rng, ease or Ease())
        group = self._source.ask(grid, drawn, turns, talk)
        states = self._look(group)
        page = (drawn._replace(pictures=[_without_pixels(p) for p in drawn.pictures]), states.half())
        if len(kept) < ROOM:
            kept.append(page)
        else:
            kept[int(rng.integers(ROOM))] = page
        return replace(group, states=states)


def _without_pixels(picture: Scene) -> Scene:
    return replace(picture, pixels=np.zeros((0, 0, 3), np.uint8))
