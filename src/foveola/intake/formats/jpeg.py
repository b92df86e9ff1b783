"""JPEG: segments of 0xFF, a marker and a length, up to the first scan (ITU-T T.81, annex B)."""

from __future__ import annotations

from foveola.exchange import BadImage
from foveola.intake.formats.header import Header, damaged, unsupported
from foveola.intake.formats.orientation import exif_orientation, xmp_orientation

_MAX_SEGMENTS = 5000
_MAX_SCAN_PIXELS = 1_300_000_000
"""Scans times pixels: twenty passes over the largest picture. A progressive file has about ten scans; each costs a
pass over all blocks however few bytes it has, so that thousands of empty ones would keep a processor busy for hours."""

_SOI, _EOI, _SOS, _APP1, _ADOBE, _JFIF, _COM = 0xD8, 0xD9, 0xDA, 0xE1, 0xEE, 0xE0, 0xFE
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_HUFFMAN = frozenset({0xC0, 0xC1, 0xC2})
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


def read_jpeg(data: bytes) -> Header:
    """Measure a JPEG; keep its tables, frame and scans, JFIF and Adobe markers (they say which colours it has)."""
    kept = [b"\xff\xd8"]
    frame: bytes | None = None
    coding = 0
    exif = b""
    by_xmp = None
    position = 2
    for _ in range(_MAX_SEGMENTS):
        # Decoders skip what is no marker, and fill bytes before one.
        position = data.find(b"\xff", position)
        marker = data[position + 1] if 0 <= position < len(data) - 1 else _EOI
        if marker in (0x00, 0xFF):
            position += 1
            continue
        if marker == _EOI:
            raise damaged("JPEG", "it ends before any picture data")
        if marker in _ALONE:
            position += 2
            continue
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        segment = data[position + 4 : position + 2 + length]
        if length < 2 or len(segment) != length - 2:
            raise damaged("JPEG", "it ends inside a header segment")
        if marker in _FRAMES:
            if frame is not None:
                raise damaged("JPEG", "it has two frame headers")
            frame, coding = segment, marker
        if marker == _SOS:
            break
        if marker == _APP1 and segment.startswith(b"Exif\0\0"):
            exif = exif or segment
        elif marker == _APP1 and segment.startswith(_XMP):
            by_xmp = by_xmp or xmp_orientation(segment)
        if _makes_pixels(marker, segment):
            kept.append(data[position : position + 2 + length])
        position += 2 + length
    else:
        raise damaged("JPEG", f"it has more than {_MAX_SEGMENTS} header segments")
    if frame is None:
        raise damaged("JPEG", "its picture data comes before its size")
    width, height = _measure(frame)
    if coding in _HUFFMAN and 8 * (len(data) - position) < -(-width // 8) * -(-height // 8):
        # Every block of 8 x 8 takes a bit or more. The decoder would show grey for the blocks that never come.
        raise damaged("JPEG", f"it has too few bytes for {width} x {height} pixels")
    body = b"".join((*kept, memoryview(data)[position:]))
    if body.count(b"\xff\xda") * width * height > _MAX_SCAN_PIXELS:
        raise BadImage(
            "The JPEG picture has far more scans than any encoder writes; save it anew, as baseline JPEG.",
            field="image",
        )
    return Header("JPEG", width, height, body, exif_orientation(exif) or by_xmp or 1)


def _measure(frame: bytes) -> tuple[int, int]:
    if len(frame) < 6:
        raise damaged("JPEG", "its frame header is cut off")
    if frame[0] != 8:
        raise unsupported("JPEG", f"{frame[0]} bits per sample")
    if frame[5] not in (1, 3, 4):
        raise unsupported("JPEG", f"{frame[5]} colour components")
    return int.from_bytes(frame[3:5], "big"), int.from_bytes(frame[1:3], "big")


def _makes_pixels(marker: int, segment: bytes) -> bool:
    if marker == _JFIF:
        return segment.startswith(b"JFIF\0")
    if marker == _ADOBE:
        return segment.startswith(b"Adobe")
    return not (_JFIF < marker <= 0xEF or marker == _COM)
