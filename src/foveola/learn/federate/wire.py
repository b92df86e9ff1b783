"""What crosses the wire, version 1, little-endian. Nothing is believed: every field is checked before it is used.

======  ==========================================================================
bytes   header (44)
======  ==========================================================================
4       ``FVPU``
1       version, 1
1       kind: 1 an update of a node, 2 a broadcast of the server, 3 a snapshot
1 + 1   coding of the index and its parameter (``index``); 0 and 0 in a snapshot
2 + 2   rows, width
4       entries that follow; rows × width in a snapshot
4       round
8       node; 0 for the server
8       base: the first bytes of the SHA-256 of the prompt that this builds on
4       examples that the node saw
4       scale, float32: value = level × scale
======  ==========================================================================

Then the index, then one int8 level per entry (a snapshot: float32 values); at the end a CRC-32 of all before it.
The CRC finds accidents. Who sent it is for the transport to prove, and ``rounds`` compares.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from foveola.learn.federate import index
from foveola.learn.federate.codec import Floats, Sparse
from foveola.learn.federate.options import MAX_BYTES, Rejected

MAGIC, VERSION = b"FVPU", 1
UPDATE, BROADCAST, SNAPSHOT = 1, 2, 3
BASE_BYTES = 8
_HEADER = struct.Struct("<4sBBBBHHIIQ8sIf")
_CRC = struct.Struct("<I")
_MAX_SCALE = 1e30
OVERHEAD_BYTES = _HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A sparse change of a prompt ``[rows, width]``, from a ``node`` or (0) from the server."""

    rows: int
    width: int
    round: int
    node: int
    base: bytes
    examples: int
    sparse: Sparse


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A whole prompt, float32 ``[rows, width]``, as it is at the start of ``round``."""

    round: int
    values: Floats


def digest(values: Floats) -> bytes:
    """The eight bytes by which a prompt is recognised."""
    return hashlib.sha256(np.ascontiguousarray(values, "<f4").tobytes()).digest()[:BASE_BYTES]


def pack(message: Update | Snapshot) -> bytes:
    """The bytes of a message. Raises ValueError where they would be more than ``MAX_BYTES``."""
    if isinstance(message, Snapshot):
        rows, width = message.values.shape
        header = _HEADER.pack(
            MAGIC, VERSION, SNAPSHOT, 0, 0, rows, width, rows * width, message.round, 0, digest(message.values), 0, 0.0
        )
        body = np.ascontiguousarray(message.values, "<f4").tobytes()
    else:
        sparse = message.sparse
        coded = index.encode(sparse.positions, sparse.size)
        header = _HEADER.pack(
            MAGIC, VERSION, UPDATE if message.node else BROADCAST, coded.coding, coded.bits, message.rows,
            message.width, len(sparse.levels), message.round, message.node, message.base, message.examples,
            sparse.scale,
        )  # fmt: skip
        body = coded.data + sparse.levels.tobytes()
    data = header + body + _CRC.pack(zlib.crc32(header + body))
    if len(data) > MAX_BYTES:
        raise ValueError(f"a message of {len(data)} bytes is over the limit of {MAX_BYTES}; keep fewer entries")
    return data


def unpack(data: bytes) -> Update | Snapshot:
    """The message in ``data``. Raises Rejected (oversize, malformed) for anything that ``pack`` would not write."""
    if len(data) > MAX_BYTES:
        raise Rejected("oversize", f"An update of {len(data)} bytes came; at most {MAX_BYTES} are read.")
    if len(data) < OVERHEAD_BYTES:
        raise _malformed(f"it has {len(data)} bytes, and the header alone has {OVERHEAD_BYTES}")
    (magic, version, kind, coding, bits, rows, width, count, number, node, base, examples, scale) = _HEADER.unpack_from(
        data
    )
    if magic != MAGIC or version != VERSION:
        raise _malformed(f"it is not of version {VERSION} of the format")
    if _CRC.unpack_from(data, len(data) - _CRC.size)[0] != zlib.crc32(data[: -_CRC.size]):
        raise _malformed("its checksum is wrong")
    size, body = rows * width, data[_HEADER.size : -_CRC.size]
    if size == 0 or count > size:
        raise _malformed(f"it holds {count} entries for {rows} rows of {width}")
    if kind == SNAPSHOT:
        if (coding, bits, node, examples, scale, count) != (0, 0, 0, 0, 0.0, size):
            raise _malformed("a field has a value that snapshots do not have")
        return _snapshot(body, rows, width, number, base)
    if kind not in (UPDATE, BROADCAST) or (kind == BROADCAST) != (node == 0):
        raise _malformed("kind and node do not fit together")
    if not math.isfinite(scale) or scale < 0 or scale > _MAX_SCALE or (scale == 0) != (count == 0):
        raise _malformed("its scale is not a positive number in range")
    sparse = _sparse(body, index.Coded(coding, bits, body[: len(body) - count]), size, count, scale)
    return Update(rows, width, number, node, base, examples, sparse)


def _sparse(body: bytes, coded: index.Coded, size: int, count: int, scale: float) -> Sparse:
    if len(body) < count:
        raise _malformed("it is cut off")
    levels = np.frombuffer(body, np.int8, count, len(body) - count)
    if (levels == 0).any() or (levels == -128).any():
        raise _malformed("it holds levels outside of 1 to 127")
    try:
        return Sparse(size, index.decode(coded, count, size), levels, scale)
    except ValueError as error:
        raise _malformed(str(error)) from None


def _snapshot(body: bytes, rows: int, width: int, number: int, base: bytes) -> Snapshot:
    if len(body) != rows * width * 4:
        raise _malformed("it is cut off or too long")
    values = np.frombuffer(body, "<f4").reshape(rows, width)
    if not np.isfinite(values).all() or digest(values) != base:
        raise _malformed("its values are not finite or not those of its digest")
    return Snapshot(number, values)


def _malformed(why: str) -> Rejected:
    return Rejected("malformed", f"The update cannot be read: {why}. Send it again, made by this version of Foveola.")
