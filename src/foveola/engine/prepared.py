"""What a request has become when it reaches the engine's thread: tokens, positions, patches; nothing encoded left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from foveola.engine.features import Grid, Numbers, Selected
from foveola.engine.prompts import VisualPrompt
from foveola.exchange import ImageUse, Request
from foveola.intake.geometry import Packed


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A prompt ready to run.

    ``ids`` int64 ``[S]``, ``positions`` int64 ``[A, S]`` with as many axes A as the model counts on; the first token
    of the answer stands at ``next_position``. ``visual`` int64 ``[N]`` are the places of all visual tokens in ``ids``,
    picture after picture; ``grids`` the rows and columns of each picture's cells, and ``cells`` int64 ``[N]`` the cell
    of each visual token, counted through all pictures, -1 for none (None: one token per cell, in order). ``packed`` is
    None without pictures. The vision graph will leave out ``left_out`` of the visual tokens, so that the decoder reads
    ``length`` tokens in all. ``parts`` are the visual tokens of each picture or, of one in tiles, of its thumbnail and
    its tiles: of what goes through the vision graph apart; ``textures`` say how each picture is encoded. Where somebody
    else ran the vision graph, ``seen`` is what it made of each picture, and ``packed`` is None. ``prompt`` has its
    places in ``ids`` before those of the first picture. Times are seconds.
    """

    ids: Numbers
    positions: Numbers
    next_position: int
    visual: Numbers
    packed: Packed | None = None
    grids: tuple[Grid, ...] = ()
    cells: Numbers | None = None
    images: tuple[ImageUse, ...] = ()
    decode_image_s: float = 0.0
    preprocess_s: float = 0.0
    left_out: int = 0
    parts: tuple[int, ...] = ()
    textures: tuple[tuple[float, ...], ...] = ()
    seen: tuple[Selected, ...] = ()
    prompt: VisualPrompt | None = None

    @property
    def length(self) -> int:
        """Tokens of the prompt that the decoder reads."""
        return len(self.ids) - self.left_out


@dataclass(frozen=True, slots=True)
class Counts:
    """What a request would cost before it is run; ``visual_tokens``, without those left out, are part of
    ``prompt_tokens``."""

    prompt_tokens: int
    visual_tokens: int
    images: tuple[ImageUse, ...]


class Preparing(Protocol):
    """What the engine needs of intake; ``Preparation`` is one, the tests have another. Thread-safe."""

    def __call__(self, request: Request) -> Prepared:
        """Everything that does not need the graphs. Raises what ``foveola.intake`` raises."""

    def count(self, request: Request) -> Counts:
        """The tokens that ``request`` would take."""
