"""Where the rows of a visual prompt stand: before the first picture, one position each, and what follows moves on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class Room(NamedTuple):
    """A prompt's tokens with room for a visual prompt: ``ids`` int64 ``[S]``, ``positions`` ``[A, S]``, ``visual`` the
    places of all visual tokens. The rows stand at ``at`` and after it."""

    ids: Numbers
    positions: Numbers
    visual: Numbers
    at: int


def make_room(ids: Numbers, positions: Numbers, visual: Numbers, rows: int, filler: int) -> Room:
    """Put ``rows`` tokens ``filler`` before the first of the places ``visual``. What follows moves on by as many, in
    place and in position; the rows count on from where the picture stood, the same on all axes of ``[A, S]``."""
    at = int(visual[0])
    own = positions[:, at : at + 1] + np.arange(rows)
    return Room(
        np.concatenate([ids[:at], np.full(rows, filler, np.int64), ids[at:]]),
        np.concatenate([positions[:, :at], own, positions[:, at:] + rows], axis=1),
        visual + rows,
        at,
    )
