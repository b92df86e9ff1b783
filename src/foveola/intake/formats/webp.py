"""WebP: a RIFF container (https://developers.google.com/speed/webp/docs/riff_container)."""

from __future__ import annotations

from foveola.intake.formats.header import Header, damaged
from foveola.intake.formats.orientation import exif_orientation, xmp_orientation

_MAX_CHUNKS = 10_000


def read_webp(data: bytes) -> Header:
    """Measure a WebP before its decoder reserves a canvas. Of an animation the first frame is shown."""
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise damaged("WebP", f"it ends after {len(data)} bytes, before its declared length")
    size = _measure(data[12:16], data[20:30])
    orientation = by_xmp = None
    position = 12
    for _ in range(_MAX_CHUNKS):
        name = data[position : position + 4]
        length = int.from_bytes(data[position + 4 : position + 8], "little")
        if len(name) < 4:
            break
        if name == b"EXIF":
            orientation = orientation or exif_orientation(data[position + 8 : position + 8 + length])
        elif name == b"XMP ":
            by_xmp = by_xmp or xmp_orientation(data[position + 8 : position + 8 + length])
        position += 8 + length + length % 2
    else:
        raise damaged("WebP", f"it has more than {_MAX_CHUNKS} parts")
    return Header("WEBP", *size, data, orientation or by_xmp or 1)


def _measure(name: bytes, head: bytes) -> tuple[int, int]:
    if len(head) == 10:
        if name == b"VP8X":
            return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
        if name == b"VP8L" and head[0] == 0x2F:
            bits = int.from_bytes(head[1:5], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        if name == b"VP8 " and head[3:6] == b"\x9d\x01\x2a":
            return int.from_bytes(head[6:8], "little") & 0x3FFF, int.from_bytes(head[8:10], "little") & 0x3FFF
    raise damaged("WebP", "it has no readable header")
