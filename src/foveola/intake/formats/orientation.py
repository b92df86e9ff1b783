"""The orientation of a picture, out of its EXIF or XMP block, and nothing else out of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_TAG = 0x0112
_WIDTHS = {1: 1, 3: 2, 4: 4}  # TIFF types BYTE, SHORT, LONG and their bytes
_XMP = re.compile(rb"tiff:Orientation(?:=\"|>)([1-8])")
_MAX_ENTRIES = 1024


def exif_orientation(block: bytes) -> int | None:
    """The value (1..8) of the orientation tag in an EXIF ``block``, or None. Never raises: a bad block says nothing."""
    if block[:6] == b"Exif\0\0":
        block = block[6:]
    order: Literal["little", "big"]
    if block[:4] == b"II*\0":
        order = "little"
    elif block[:4] == b"MM\0*":
        order = "big"
    else:
        return None
    start = int.from_bytes(block[4:8], order)
    count = int.from_bytes(block[start : start + 2], order)
    for index in range(min(count, _MAX_ENTRIES)):
        entry = block[start + 2 + 12 * index : start + 14 + 12 * index]
        if len(entry) < 12:
            return None
        if int.from_bytes(entry[:2], order) == _TAG:
            width = _WIDTHS.get(int.from_bytes(entry[2:4], order), 0)
            value = int.from_bytes(entry[8 : 8 + width], order)
            return value if 1 <= value <= 8 else None
    return None


def xmp_orientation(block: bytes) -> int | None:
    """The orientation (1..8) that an XMP ``block`` names, or None."""
    match = _XMP.search(block)
    return int(match.group(1)) if match else None


_TURNS: dict[int, Callable[[NDArray[Any]], NDArray[Any]]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a.swapaxes(0, 1)[:, ::-1],
    7: lambda a: a.swapaxes(0, 1)[::-1, ::-1],
    8: lambda a: a.swapaxes(0, 1)[::-1],
}


def upright(rgb: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """``rgb`` uint8 [H, W, 3] turned as EXIF ``orientation`` (1..8) asks, contiguous in memory."""
    return np.ascontiguousarray(_TURNS[orientation](rgb))
