"""Between vision and language: which visual tokens the decoder gets to see.

``select`` is the named place for token compression. Today every token passes (``keep_all``); a method that keeps
fewer, or merges some, is a function of the same shape, and nothing else in the engine changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import Evidence

Grid = tuple[int, int]  # rows, columns of visual tokens of one picture
Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


class Selected(NamedTuple):
    """``features`` float32 ``[M, H]`` for the decoder and, ascending, the visual tokens ``kept`` int64 ``[M]`` whose
    places they take, counted through all pictures of the request."""

    features: Floats
    kept: Numbers


Select = Callable[[Floats, tuple[Grid, ...]], Selected]


def keep_all(features: Floats, grids: tuple[Grid, ...]) -> Selected:
    """The identity: every visual token ``[N, H]`` passes as it is."""
    return Selected(features, np.arange(len(features)))


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A stretch of one prompt, ready for the decoder.

    ``ids`` int64 ``[S]``; ``positions`` int64 ``[A, S]`` (time, row, column of M-RoPE, or one axis); ``start`` tokens
    of the same prompt are in the KV row already. ``rows`` int64 ``[M]`` are the places in this chunk where ``features``
    float32 ``[M, E]`` stand instead of the embedding of ``ids``.
    """

    ids: Numbers
    positions: Numbers
    start: int
    rows: Numbers
    features: Floats | None


def place(ids: Numbers, positions: Numbers, visual: Numbers, selected: Selected | None) -> Chunk:
    """The whole prompt as one chunk, with the selected features at their places.

    ``visual`` int64 ``[N]`` are the places of all visual tokens in ``ids``. Tokens that were not kept vanish from
    the prompt; those that stay keep the positions that they had, so that the geometry of the picture survives.
    """
    if selected is None:
        return Chunk(ids, positions, 0, visual, None)
    if len(selected.features) != len(selected.kept):
        raise ValueError(f"{len(selected.features)} features were selected for {len(selected.kept)} places")
    rows = visual[selected.kept]
    if len(selected.kept) < len(visual):
        stays = np.ones(len(ids), bool)
        stays[visual] = False
        stays[rows] = True
        ids, positions = ids[stays], np.ascontiguousarray(positions[:, stays])
        rows = (np.cumsum(stays) - 1)[rows]
    return Chunk(ids, positions, 0, rows, selected.features)


def evidence_of(
    attention: Floats, chunk: Chunk, kept: Numbers, grids: tuple[Grid, ...], cells: Numbers | None = None
) -> tuple[Evidence, ...]:
    """Per picture, how much of the attention of the last prompt position fell on each of its cells.

    ``attention`` float32 ``[total]`` over all keys. A cell is a visual token, unless ``cells`` says for each visual
    token of the request to which one it belongs (-1: to none). A token that was not kept has weight 0.
    """
    sizes = [rows * columns for rows, columns in grids]
    weights = np.zeros(sum(sizes), np.float32)
    seen = attention[chunk.start + chunk.rows]
    if cells is None:
        weights[kept] = seen
    else:
        own = cells[kept]
        np.add.at(weights, own[own >= 0], seen[own >= 0])
    result, at = [], 0
    for grid, size in zip(grids, sizes, strict=True):
        part = weights[at : at + size]
        result.append(Evidence(grid=grid, weights=tuple(part.tolist()), mass=float(part.sum(dtype=np.float64))))
        at += size
    return tuple(result)
