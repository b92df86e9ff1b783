"""Between vision and language: which visual tokens the decoder gets to see.

The vision graph of a bundle with a place of selection keeps as many visual tokens of each picture as it is told
(``keep_of``), and says which, and how many each stands for. ``select`` is the place for what the engine itself may do
to them, with all pictures of a request in view; without it every token that the graph gave passes (``keep_all``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    places they take, counted through all pictures of the request. ``counts`` float32 ``[M]`` is how many tokens each
    stands for; None: for itself alone."""

    features: Floats
    kept: Numbers
    counts: Floats | None = None


Select = Callable[[Selected, tuple[Grid, ...]], Selected]


def keep_all(seen: Selected, grids: tuple[Grid, ...]) -> Selected:
    """The identity: every visual token that the vision graph gave passes as it is."""
    return seen


def joined(pictures: Sequence[Selected], tokens: Sequence[int]) -> Selected:
    """The pictures of a request, of ``tokens`` visual tokens each before any were left out, as one."""
    starts = np.cumsum([0, *tokens])[:-1]
    counts = None
    if any(one.counts is not None for one in pictures):
        alone = np.float32(1)
        every = (np.broadcast_to(alone if one.counts is None else one.counts, one.kept.shape) for one in pictures)
        counts = np.concatenate(list(every))
    return Selected(
        np.concatenate([one.features for one in pictures]),
        np.concatenate([one.kept + start for one, start in zip(pictures, starts, strict=True)]),
        counts,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A stretch of one prompt, ready for the decoder.

    ``ids`` int64 ``[S]``; ``positions`` int64 ``[A, S]`` (time, row, column of M-RoPE, or one axis); ``start`` tokens
    of the same prompt are in the KV row already. ``rows`` int64 ``[M]`` are the places in this chunk where ``features``
    float32 ``[M, E]`` stand instead of the embedding of ``ids``. ``bias`` float32 ``[S]`` is added to the attention to
    each token: the logarithm of how many it stands for (None: of one).
    """

    ids: Numbers
    positions: Numbers
    start: int
    rows: Numbers
    features: Floats | None
    bias: Floats | None = None


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
    bias = None
    if selected.counts is not None and (selected.counts != 1).any():
        bias = np.zeros(len(ids), np.float32)
        bias[rows] = np.log(selected.counts)
    return Chunk(ids, positions, 0, rows, selected.features, bias)


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
    owners = kept if cells is None else cells[kept]
    for grid, size in zip(grids, sizes, strict=True):
        part = weights[at : at + size]
        mine = (owners >= at) & (owners < at + size)
        summary = () if chunk.features is None or not mine.any() else tuple(chunk.features[mine].mean(0).tolist())
        result.append(Evidence(grid, tuple(part.tolist()), float(part.sum(dtype=np.float64)), summary))
        at += size
    return tuple(result)
