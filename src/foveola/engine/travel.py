"""Features on their way from one service to another, and pictures on theirs: a bounded, checked binary form.

    magic (4 bytes) · length of the head (u32) · head (JSON, UTF-8) · data

All numbers are little-endian. The head says how long everything is, which weights it comes from, and the BLAKE2b digest
of the data; nothing that it says is believed before it is held against the bounds and against what is really there.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from foveola.engine.features import Selected

FEATURES, PICTURES = b"FVF1", b"FVP1"
MAX_HEAD_BYTES = 64 * 1024
MAX_PICTURES = 64
MAX_TOKENS = 65_536
MAX_WIDTH = 65_536
MAX_DATA_BYTES = 256 * 1024 * 1024


class Garbled(ValueError):
    """These bytes are not what they should be; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a language service asks of a vision service: encoded pictures, the visual tokens that the prompt has room
    for, and how many of each picture to keep (None: all). ``span`` is the W3C
    ``traceparent`` of whose question it is; it travels beside, not within."""

    pictures: tuple[bytes, ...]
    room_tokens: int | None = None
    keep: int | None = None
    span: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """One picture seen: ``used`` (width, height) in pixels, ``tokens`` before any were left out, and the features."""

    used: tuple[int, int]
    tokens: int
    seen: Selected


@dataclass(frozen=True, slots=True, eq=False)
class Sights:
    """What a vision service answers. ``version`` names the weights of its vision graph."""

    version: str
    sights: tuple[Sight, ...]


def pack_look(look: Look) -> bytes:
    """As bytes."""
    head = {
        "sizes": [len(picture) for picture in look.pictures],
        "room_tokens": look.room_tokens,
        "keep": look.keep,
    }
    return _packed(PICTURES, head, b"".join(look.pictures))


def unpack_look(data: bytes | bytearray) -> Look:
    """From bytes. Raises ``Garbled``."""
    head, body = _unpacked(PICTURES, data)
    sizes = head.get("sizes")
    if not isinstance(sizes, list) or not 1 <= len(sizes) <= MAX_PICTURES:
        raise Garbled(f"expected 1 to {MAX_PICTURES} pictures")
    if not all(_whole(size, 1, MAX_DATA_BYTES) for size in sizes) or sum(sizes) != len(body):
        raise Garbled("the sizes are not those of the data")
    for name in ("room_tokens", "keep"):
        if head.get(name) is not None and not _whole(head[name], 0 if name == "room_tokens" else 1, MAX_TOKENS):
            raise Garbled(f"{name} is out of range")
    pictures, at = [], 0
    for size in sizes:
        pictures.append(bytes(body[at : at + size]))
        at += size
    return Look(tuple(pictures), head.get("room_tokens"), head.get("keep"))


def pack_sights(sights: Sights) -> bytes:
    """As bytes."""
    told, data = [], []
    for sight in sights.sights:
        features, kept, counts = sight.seen
        told.append(
            {
                "used": list(sight.used),
                "tokens": sight.tokens,
                "rows": len(features),
                "width": features.shape[1],
                "counts": counts is not None,
            }
        )
        data += [np.ascontiguousarray(features, "<f4").tobytes(), np.ascontiguousarray(kept, "<u4").tobytes()]
        if counts is not None:
            data.append(np.ascontiguousarray(counts, "<f4").tobytes())
    return _packed(FEATURES, {"version": sights.version, "pictures": told}, b"".join(data))


def unpack_sights(data: bytes | bytearray) -> Sights:
    """From bytes. Raises ``Garbled``."""
    head, body = _unpacked(FEATURES, data)
    version, told = head.get("version"), head.get("pictures")
    if not isinstance(version, str) or len(version) > 128:
        raise Garbled("there is no version of the weights")
    if not isinstance(told, list) or not 1 <= len(told) <= MAX_PICTURES:
        raise Garbled(f"expected 1 to {MAX_PICTURES} pictures")
    sights, at = [], 0
    for one in told:
        sight, at = _sight(one, body, at)
        sights.append(sight)
    if at != len(body):
        raise Garbled(f"{len(body) - at} bytes are left over")
    return Sights(version, tuple(sights))


def _sight(told: Any, body: memoryview, at: int) -> tuple[Sight, int]:
    if not isinstance(told, dict) or not isinstance(told.get("used"), list) or len(told["used"]) != 2:
        raise Garbled("a picture is not described")
    rows: Any = told.get("rows")
    width: Any = told.get("width")
    tokens: Any = told.get("tokens")
    if not (_whole(rows, 1, MAX_TOKENS) and _whole(width, 1, MAX_WIDTH) and _whole(tokens, 1, MAX_TOKENS)):
        raise Garbled("a picture's numbers are out of range")
    if rows > tokens or not all(_whole(side, 1, 2**20) for side in told["used"]):
        raise Garbled("a picture's numbers do not fit together")
    features, at = _array(body, at, (rows, width), "<f4")
    kept, at = _array(body, at, (rows,), "<u4")
    counts = None
    if told.get("counts") is True:
        counts, at = _array(body, at, (rows,), "<f4")
    kept = kept.astype(np.int64)
    if kept[-1] >= tokens or (np.diff(kept) <= 0).any():
        raise Garbled("the places of the tokens do not ascend")
    if not np.isfinite(features).all() or (counts is not None and not (counts > 0).all()):
        raise Garbled("there are values that are no numbers")
    return Sight((told["used"][0], told["used"][1]), tokens, Selected(features, kept, counts)), at


def _array(body: memoryview, at: int, shape: tuple[int, ...], kind: str) -> tuple[Any, int]:
    end = at + math.prod(shape) * 4
    if end > len(body):
        raise Garbled("the data is cut off")
    return np.frombuffer(body[at:end], kind).reshape(shape), end


def _packed(magic: bytes, head: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps({**head, "digest": blake2b(data, digest_size=32).hexdigest()}).encode()
    return magic + struct.pack("<I", len(text)) + text + data


def _unpacked(magic: bytes, data: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
    if len(data) < 8 or data[:4] != magic:
        raise Garbled(f"it does not begin with {magic.decode()}")
    (length,) = struct.unpack("<I", data[4:8])
    if not 2 <= length <= MAX_HEAD_BYTES or 8 + length > len(data) or len(data) > MAX_DATA_BYTES + MAX_HEAD_BYTES:
        raise Garbled("its head or its data is too long, or cut off")
    try:
        head = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError):
        raise Garbled("its head is no JSON") from None
    body = memoryview(data)[8 + length :]
    if not isinstance(head, dict) or head.get("digest") != blake2b(body, digest_size=32).hexdigest():
        raise Garbled("its digest is not that of its data")
    return head, body


def _whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high
