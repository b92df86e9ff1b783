"""What a model makes of a picture's size: how many tokens stand for it, what stands around them, how it is cut.

A *geometry* is that rule, under one interface for all families. A bundle says by name which one it needs
(``geometries.geometry_of``); the engine knows no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import ImageUse
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture
from foveola.intake.tiling import Tiling

Size = tuple[int, int]
"""(width, height) in pixels."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One picture as the prompt will show it.

    ``pieces`` are what stands in the place of its image token: numbers of visual tokens, and control text between
    them. ``grid`` is (rows, columns) of the cells that evidence is drawn on; ``cells`` int64 [tokens] says which cell
    each visual token belongs to, -1 for none (None: token i is cell i). A geometry that cuts pictures into tiles says
    into how many, and in ``level`` by which of its rules: 0 is the model's own, higher ones are coarser. ``tiling`` is
    that of an elongated picture, for a geometry that has no tiles of its own.
    """

    use: ImageUse
    grid: tuple[int, int]
    pieces: tuple[int | str, ...]
    cells: NDArray[np.int64] | None = None
    level: int = 0
    tiles: int = 0
    tiling: Tiling | None = None

    @property
    def parts(self) -> tuple[int, ...]:
        """Visual tokens of each part that goes through the vision graph on its own, in the order of the prompt."""
        return (self.use.tokens,) if self.tiling is None else self.tiling.counts

    @property
    def length(self) -> int:
        """Tokens in the prompt, at most: visual ones and those of the control text."""
        return sum(piece if isinstance(piece, int) else _most_tokens(piece) for piece in self.pieces)


class Geometry(Protocol):
    """The rule of one family. Stateless, safe to share between threads."""

    @property
    def enough_pixels(self) -> int:
        """A picture of more pixels than this can be decoded smaller without any loss that the model could see."""

    def fit(self, sizes: Sequence[Size], *, room_tokens: int | None = None) -> tuple[View, ...]:
        """How each picture is shown, so that all together fit the graph and ``room_tokens`` of the prompt.

        Raises OverBudget when they cannot, BadImage for a picture that the model cannot take.
        """

    def pack(self, pictures: Sequence[Picture], views: Sequence[View]) -> Packed:
        """The inputs of the vision graph. Features come in the order of the visual tokens of ``views``."""

    def positions(
        self, ids: NDArray[np.int64], views: Sequence[View], *, image_token_id: int
    ) -> tuple[NDArray[np.int64], int]:
        """Positions int64 [axes, S] of a prompt, and that of the token after it."""


def counted_positions(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Positions of a model that counts tokens one after the other: int64 [1, S], and the next."""
    return np.arange(len(ids), dtype=np.int64)[None], len(ids)


def _most_tokens(text: str) -> int:
    """Control tokens are one each; what is between them, at most one per character."""
    outside, rest = 0, text
    while "<" in rest and ">" in rest:
        before, _, rest = rest.partition("<")
        rest = rest.partition(">")[2]
        outside += len(before) + 1
    return outside + len(rest)
