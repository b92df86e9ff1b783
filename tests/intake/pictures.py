"""Pictures made by hand, so that every pixel is known without the library under test."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"

COLOURS = np.array(
    [
        [[255, 0, 0], [0, 255, 0], [0, 0, 255]],
        [[255, 255, 0], [0, 255, 255], [9, 9, 9]],
    ],
    dtype=np.uint8,
)
"""2 rows, 3 columns, all different: shows every turn and mirror."""


def encoded(pixels: Any, format: str, **options: Any) -> bytes:
    """``pixels`` (array or PIL picture) as a file."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    width: int, height: int, depth: int, kind: int, rows: Sequence[bytes], *before: bytes, after: Sequence[bytes] = ()
) -> bytes:
    """A PNG of raw ``rows`` (unfiltered); ``before`` are chunks between header and data."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"".join((SIGNATURE, header, *before, data, *after, chunk(b"IEND", b"")))


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    """An EXIF block with nothing but an orientation tag."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    value = struct.pack(order + "HHI", 0x0112, kind, 1) + struct.pack(
        order + ("HH" if kind == 3 else "I"), *((orientation, 0) if kind == 3 else (orientation,))
    )
    return mark + struct.pack(order + "IH", 8, 1) + value + bytes(4)


def jpeg_segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def tiff(tags: dict[int, tuple[int, list[int]]], data: bytes = b"", *, order: str = "<", big: bool = False) -> bytes:
    """A TIFF whose first directory has ``tags`` = {tag: (type, values)}; ``data`` follows the header directly.

    Offsets of data start at 8 (16 in BigTIFF).
    """
    width = {1: "B", 2: "B", 3: "H", 4: "I", 16: "Q"}
    offset, count, entry_count = ("Q", "Q", 20) if big else ("I", "H", 12)
    head = 16 if big else 8
    entries = b""
    first = head + len(data) + len(data) % 2
    values_at = first + struct.calcsize(order + count) + entry_count * len(tags) + struct.calcsize(order + offset)
    values_out = b""
    for tag, (kind, values) in sorted(tags.items()):
        raw = b"".join(struct.pack(order + width[kind], value) for value in values)
        size = struct.calcsize(order + offset)
        if len(raw) <= size:
            field = raw.ljust(size, b"\0")
        else:
            field = struct.pack(order + offset, values_at + len(values_out))
            values_out += raw + bytes(len(raw) % 2)
        entries += struct.pack(order + "HH" + offset, tag, kind, len(values)) + field
    mark = b"II" if order == "<" else b"MM"
    order_and_first = struct.pack(order + "HHHQ", 43, 8, 0, first) if big else struct.pack(order + "HI", 42, first)
    directory = struct.pack(order + count, len(tags)) + entries + struct.pack(order + offset, 0)
    return mark + order_and_first + data + bytes(len(data) % 2) + directory + values_out


def grey_tiff(pixels: np.ndarray[Any, Any], *, order: str = "<", big: bool = False, **tags: Any) -> bytes:
    """An uncompressed one-channel TIFF of ``pixels``; ``tags`` like ``t262=(3, [0])`` change or add one."""
    height, width = pixels.shape
    raw = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
    form = 3 if pixels.dtype.kind == "f" else 2 if pixels.dtype.kind == "i" else 1
    fields: dict[int, tuple[int, list[int]]] = {
        256: (3, [width]),
        257: (3, [height]),
        258: (3, [pixels.dtype.itemsize * 8]),
        259: (3, [1]),
        262: (3, [1]),
        273: (4, [16 if big else 8]),
        277: (3, [1]),
        278: (3, [height]),
        279: (4, [len(raw)]),
        339: (3, [form]),
    }
    fields.update({int(name[1:]): value for name, value in tags.items()})
    return tiff({tag: value for tag, value in fields.items() if value}, raw, order=order, big=big)
