"""Where the entries of a sparse update are: as a bitmap, or as Golomb–Rice coded gaps, whichever is shorter.

Rice, "Some practical universal noiseless coding techniques" (JPL, 1979): a gap g is ``g >> bits`` in unary and its
low ``bits`` bits plain. Both parts lie apart, so that numpy reads them at once. Each set of positions has exactly
one encoding of each kind; everything else is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
BITMAP, RICE = 0, 1
MAX_RICE_BITS = 20


class Coded(NamedTuple):
    """Encoded positions: which ``coding``, its parameter, and the bytes."""

    coding: int
    bits: int
    data: bytes


def encode(positions: Positions, size: int) -> Coded:
    """Encode rising ``positions`` in 0..size-1. Raises ValueError where they do not rise or leave the range."""
    gaps = np.diff(positions, prepend=-1) - 1
    if len(positions) and (gaps.min() < 0 or positions[-1] >= size):
        raise ValueError(f"positions rise strictly within 0..{size - 1}")
    bitmap = (size + 7) // 8
    # The best parameter is near log2 of the mean gap; its neighbours are tried as well.
    middle = int(np.log2(max(float(gaps.mean()), 1.0))) if len(gaps) else 0
    lengths = {bits: _rice_bytes(gaps, bits) for bits in range(max(middle - 1, 0), min(middle + 2, MAX_RICE_BITS))}
    bits = min(lengths, key=lengths.__getitem__)
    if lengths[bits] < bitmap:
        return Coded(RICE, bits, _rice(gaps, bits))
    marks = np.zeros(size, np.uint8)
    marks[positions] = 1
    return Coded(BITMAP, 0, np.packbits(marks).tobytes())


def decode(coded: Coded, count: int, size: int) -> Positions:
    """int64 ``[count]``, rising within 0..size-1. Raises ValueError for anything that ``encode`` would not write."""
    raw = np.frombuffer(coded.data, np.uint8)
    if coded.coding == BITMAP and coded.bits == 0:
        if len(raw) != (size + 7) // 8:
            raise ValueError("the bitmap has the wrong length")
        marks = np.unpackbits(raw)
        positions = np.flatnonzero(marks).astype(np.int64)
        if len(positions) != count or marks[size:].any():
            raise ValueError("the bitmap marks another number of entries")
        return positions
    if coded.coding != RICE or coded.bits > MAX_RICE_BITS:
        raise ValueError("the index has an unknown coding")
    low = (count * coded.bits + 7) // 8
    if len(raw) < low:
        raise ValueError("the index is cut off")
    positions = np.cumsum(_gaps(raw, len(raw) - low, count, coded.bits) + 1) - 1
    if count and positions[-1] >= size:
        raise ValueError("an entry lies outside of the prompt")
    return positions


def _rice_bytes(gaps: Positions, bits: int) -> int:
    return (int((gaps >> bits).sum()) + len(gaps) + 7) // 8 + (len(gaps) * bits + 7) // 8


def _rice(gaps: Positions, bits: int) -> bytes:
    ends = np.cumsum((gaps >> bits) + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1 if len(ends) else 0, np.uint8)
    unary[ends] = 1
    low = ((gaps[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)
    return np.packbits(unary).tobytes() + np.packbits(low.reshape(-1)).tobytes()


def _gaps(raw: NDArray[np.uint8], high: int, count: int, bits: int) -> Positions:
    unary = np.unpackbits(raw[:high])
    ends = np.flatnonzero(unary).astype(np.int64)
    if len(ends) != count or high != (int(ends[-1]) // 8 + 1 if count else 0):
        raise ValueError("the index holds another number of entries")
    low = np.unpackbits(raw[high:])
    if low[count * bits :].any():
        raise ValueError("the index does not end in zeros")
    tails = low[: count * bits].reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits - 1, -1, -1))
    gaps: Positions = ((np.diff(ends, prepend=-1) - 1) << bits) + tails
    return gaps
