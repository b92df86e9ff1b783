"""PNG: chunks of length, name, data and checksum (ISO/IEC 15948)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from foveola.intake.formats.header import Header, damaged, unsupported
from foveola.intake.formats.orientation import exif_orientation, xmp_orientation

_MAX_CHUNKS = 100_000
_MAX_TEXT = 2**16
_GREY, _RGB, _PALETTE = 0, 2, 3
_CHANNELS = {_GREY: 1, _RGB: 3}
_SAMPLES = {_GREY: 1, _RGB: 3, _PALETTE: 1, 4: 2, 6: 4}
_INFLATE_BYTES = 2**20

# Passes as (first column, first row, column step, row step).
_ONE_PASS = ((0, 0, 1, 1),)
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_NEEDED = (b"IHDR", b"PLTE", b"IDAT")
_END = b"\0\0\0\0IEND\xaeB`\x82"


def read_png(data: bytes) -> Header:
    """Measure a PNG; keep IHDR, PLTE, IDAT, and tRNS where it belongs to a palette.

    Every kept chunk must match its checksum. An animated PNG is thereby its default picture.
    """
    kept = [data[:8]]
    ihdr = b""
    transparency: bytes | None = None
    orientation = by_text = None
    has_data = has_palette = False
    for name, start, end in _chunks(data):
        chunk = data[start + 8 : end - 4] if name != b"IDAT" else b""
        if name == b"IHDR" and not ihdr:
            ihdr = chunk
            _check_sum(data, start, end)
            if len(ihdr) != 13:
                raise damaged("PNG", "its header has a wrong length")
            kept.append(data[start:end])
        elif name == b"CgBI":
            raise unsupported("PNG", "Apple's private variant of the format")
        elif not ihdr:
            raise damaged("PNG", "it does not begin with its header")
        elif name == b"eXIf":
            orientation = orientation or exif_orientation(chunk)
        elif name in (b"iTXt", b"tEXt", b"zTXt"):
            by_text = by_text or _orientation_of_text(name, chunk)
        elif name == b"tRNS" and ihdr[9] in _CHANNELS:
            transparency = chunk
        elif name in (b"PLTE", b"IDAT", b"tRNS"):
            _check_sum(data, start, end)
            has_data = has_data or name == b"IDAT"
            has_palette = has_palette or name == b"PLTE"
            kept.append(data[start:end])
    if not has_data:
        raise damaged("PNG", "it holds no picture data")
    if ihdr[9] == _PALETTE and not has_palette:
        raise damaged("PNG", "its palette is missing")
    kept.append(_END)
    width, height = int.from_bytes(ihdr[:4], "big"), int.from_bytes(ihdr[4:8], "big")
    return Header(
        "PNG",
        width,
        height,
        b"".join(kept),
        orientation or by_text or 1,
        depth=ihdr[8],
        transparent=_transparent_level(transparency, depth=ihdr[8], kind=ihdr[9]),
    )


def has_all_rows(body: bytes) -> bool:
    """Whether the data of a cleaned PNG inflate to as many bytes as its header promises.

    Pillow is content with a stream that ends early and leaves the other rows black. Costs an inflation, without
    keeping its result.
    """
    ihdr = body[16:29]
    width, height = int.from_bytes(ihdr[:4], "big"), int.from_bytes(ihdr[4:8], "big")
    bits = ihdr[8] * _SAMPLES.get(ihdr[9], 1)
    missing = sum(
        rows * (1 + (columns * bits + 7) // 8)
        for x, y, dx, dy in (_ADAM7 if ihdr[12] else _ONE_PASS)
        if (columns := -(-(width - x) // dx)) > 0 and (rows := -(-(height - y) // dy)) > 0
    )
    inflate = zlib.decompressobj()
    for name, start, end in _chunks(body):
        if name == b"IDAT":
            piece: bytes | memoryview = memoryview(body)[start + 8 : end - 4]
            while piece and missing > 0:
                missing -= len(inflate.decompress(piece, _INFLATE_BYTES))
                piece = inflate.unconsumed_tail
    return missing <= 0


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and end of every chunk up to IEND."""
    position = 8
    for _ in range(_MAX_CHUNKS):
        length = int.from_bytes(data[position : position + 4], "big")
        name = data[position + 4 : position + 8]
        end = position + 12 + length
        if end > len(data):
            if name not in _NEEDED:
                return  # cut off behind the picture; whether the picture is whole, the decoder will know
            raise damaged("PNG", f"it ends after {len(data)} bytes, inside a part that needs {end}")
        if name == b"IEND":
            return
        yield name, position, end
        position = end
    raise damaged("PNG", f"it has more than {_MAX_CHUNKS} parts")


def _check_sum(data: bytes, start: int, end: int) -> None:
    # CRC over name and data; libpng and browsers refuse such a file, Pillow would decode what is left.
    if zlib.crc32(memoryview(data)[start + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
        raise damaged("PNG", "the checksum of its data does not fit")


def _transparent_level(chunk: bytes | None, *, depth: int, kind: int) -> tuple[int, ...] | None:
    """The transparent grey or colour in the levels that Pillow decodes to (8 bits, or 16 for 16-bit grey)."""
    if chunk is None or len(chunk) < 2 * _CHANNELS[kind]:
        return None
    values = [int.from_bytes(chunk[2 * i : 2 * i + 2], "big") for i in range(_CHANNELS[kind])]
    if kind == _RGB:
        return tuple(value >> 8 if depth == 16 else value & 0xFF for value in values)
    if depth == 16:
        return tuple(values)
    top = (1 << depth) - 1
    return tuple((value & top) * 255 // top for value in values)


def _orientation_of_text(name: bytes, chunk: bytes) -> int | None:
    """Orientation in a text chunk: XMP, or the hexadecimal EXIF block that ImageMagick writes."""
    keyword, _, rest = chunk.partition(b"\0")
    if name == b"iTXt" and keyword == b"XML:com.adobe.xmp":
        return xmp_orientation(rest)
    if keyword != b"Raw profile type exif":
        return None
    if name == b"zTXt":
        try:
            rest = zlib.decompressobj().decompress(rest[1:], _MAX_TEXT)
        except zlib.error:
            return None
    digits = b"".join(rest[:_MAX_TEXT].split()[2:])  # profile name and length come first
    try:
        return exif_orientation(bytes.fromhex(digits.decode("ascii")))
    except ValueError:
        return None
