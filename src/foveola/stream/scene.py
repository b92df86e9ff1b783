"""What has been seen lately, cell by cell, and which of it is still true of a new frame.

A picture is divided into cells, one per visual token. Of each cell a sketch is kept: the mean grey level of 4 x 4
blocks, in which a scratch shows and a sensor's noise does not. A new frame's sketch is compared with those of the
window, each turned by as much as the camera has turned since. What is compared is always the sketch of the frame that
the features were *computed* from, never that of a frame for which they were reused: a slow change cannot creep in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.stream.motion import Matrix

Floats = NDArray[np.float32]
SIDE = 4  # blocks along a side of a cell


@dataclass(frozen=True, slots=True)
class Answered:
    """What was said to a question about some features, and ``attention`` [R x C], where the model looked for it."""

    question: str
    text: str
    attention: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A frame of the window. ``features`` float32 [N, E]; ``sketch`` float32 [4R, 4C], that of the frames which the
    features were computed from. ``movable``: there is one feature per cell, row by row. ``answer`` is what the model
    said to exactly these features, if it was asked."""

    time_s: float
    features: Floats
    sketch: Floats
    movable: bool
    answer: Answered | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """What of a new frame is known. ``known`` bool [R, C]; ``features`` and ``sketch`` are right where it is.

    ``entry`` is set where the whole frame is that entry, unmoved.
    """

    known: NDArray[np.bool_]
    features: Floats
    sketch: Floats
    entry: Entry | None = None


def sketch_of(rgb: NDArray[np.uint8], grid: tuple[int, int]) -> Floats:
    """Mean grey levels (of 256) of blocks, float32 [4R, 4C], of a picture uint8 [H, W, 3] with a ``grid`` of cells."""
    rows, columns = grid
    grey = Image.fromarray(rgb).convert("L")
    return np.asarray(grey.resize((columns * SIDE, rows * SIDE), Image.Resampling.BOX), np.float32)


def cell_change(one: Floats, other: Floats) -> Floats:
    """The largest difference of a block, per cell: float32 [R, C]."""
    rows, columns = one.shape[0] // SIDE, one.shape[1] // SIDE
    difference = np.abs(one - other).reshape(rows, SIDE, columns, SIDE)
    return np.asarray(difference.max(axis=(1, 3)))


class Scene:
    """The window of one camera. Entries of another size are of no use to a frame, and forgotten."""

    def __init__(self, max_window: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=max_window)

    def remember(self, entry: Entry) -> None:
        """The newest frame."""
        if self._entries and self._entries[-1].sketch.shape != entry.sketch.shape:
            self._entries.clear()
        self._entries.append(entry)

    def replace_newest(self, entry: Entry) -> None:
        """The newest frame, told better."""
        self._entries[-1] = entry

    @property
    def newest(self) -> Entry | None:
        """The frame before."""
        return self._entries[-1] if self._entries else None

    def forget(self) -> None:
        """Everything."""
        self._entries.clear()

    def match(self, sketch: Floats, warps: list[Matrix | None], window: int, epsilon: Floats) -> Match | None:
        """What is known of a frame with this ``sketch``. None where nothing was seen in this size.

        ``warps`` map a cell's coordinates in this frame to those in each entry, newest first; None: unmoved.
        ``epsilon`` float32 [R, C] is how much each cell may differ.
        """
        best: Match | None = None
        for entry, warp in zip(list(self._entries)[::-1][:window], warps, strict=False):
            if entry.sketch.shape != sketch.shape:
                continue
            seen = _unmoved(entry) if warp is None else _turned(entry, warp)
            known = seen.known & (cell_change(sketch, seen.sketch) <= epsilon)
            if known.all() and warp is None:
                return Match(known, entry.features, entry.sketch, entry)
            if not entry.movable:
                continue
            best = Match(known, seen.features, seen.sketch) if best is None else _merged(best, seen, known)
            if best.known.all():
                break
        return best

    def times(self, window: int) -> list[float]:
        """When the entries of the window were seen, newest first."""
        return [entry.time_s for entry in self._entries][::-1][:window]


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    known: NDArray[np.bool_]
    features: Floats
    sketch: Floats


def _unmoved(entry: Entry) -> _Seen:
    return _Seen(np.ones(_grid(entry), bool), entry.features, entry.sketch)


def _grid(entry: Entry) -> tuple[int, int]:
    return entry.sketch.shape[0] // SIDE, entry.sketch.shape[1] // SIDE


def _merged(best: Match, seen: _Seen, known: NDArray[np.bool_]) -> Match:
    """What the newer entries do not know is taken from the older one."""
    more = known & ~best.known
    if not more.any():
        return best
    blocks = np.repeat(np.repeat(more, SIDE, 0), SIDE, 1)
    features = np.where(more.reshape(-1, 1), seen.features, best.features)
    return Match(best.known | more, features, np.where(blocks, seen.sketch, best.sketch))


def _turned(entry: Entry, warp: Matrix) -> _Seen:
    """The entry as it would be seen now: features and sketch resampled, bilinear; unknown what was out of view."""
    rows, columns = _grid(entry)
    cells, inside = _sources(rows, columns, 1, warp)
    blocks, _ = _sources(rows, columns, SIDE, warp)
    features = entry.features
    if entry.movable:
        features = bilinear(features.reshape(rows, columns, -1), cells).reshape(features.shape)
    return _Seen(inside, features, bilinear(entry.sketch[..., None], blocks)[..., 0])


def _sources(rows: int, columns: int, side: int, warp: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Where each point of a grid, ``side`` to a cell, comes from: (row, column) float64 [.., 2]; whether in view."""
    y, x = np.mgrid[0 : rows * side, 0 : columns * side]
    points = np.stack([(x + 0.5) / side, (y + 0.5) / side, np.ones_like(x, np.float64)])
    there = np.tensordot(warp, points, 1)
    ahead = there[2] > 1e-6
    scale = np.where(ahead, there[2], 1.0)
    at_x, at_y = there[0] / scale * side - 0.5, there[1] / scale * side - 0.5
    inside = ahead & (at_x >= 0) & (at_x <= columns * side - 1) & (at_y >= 0) & (at_y <= rows * side - 1)
    return np.stack([at_y, at_x], -1), inside


def bilinear(values: Floats, places: Matrix) -> Floats:
    """``values`` [R, C, E] at ``places`` [.., 2] (row, column); beyond the edge, the edge. numpy dispatches to the
    vector units of the processor."""
    rows, columns = values.shape[:2]
    y = np.clip(places[..., 0], 0, rows - 1)
    x = np.clip(places[..., 1], 0, columns - 1)
    top, left = np.floor(y).astype(np.intp), np.floor(x).astype(np.intp)
    bottom, right = np.minimum(top + 1, rows - 1), np.minimum(left + 1, columns - 1)
    down = (y - top).astype(np.float32)[..., None]
    over = (x - left).astype(np.float32)[..., None]
    upper = values[top, left] * (1 - over) + values[top, right] * over
    lower = values[bottom, left] * (1 - over) + values[bottom, right] * over
    return np.asarray(upper * (1 - down) + lower * down, np.float32)
