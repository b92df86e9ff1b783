"""TIFF and BigTIFF: directories of tags, each pointing at data anywhere in the file (TIFF 6.0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foveola.exchange import TooLarge
from foveola.intake.formats.header import Header, damaged, unsupported

_MAX_ENTRIES = 1024
_MAX_PARTS = 65_536
"""Strips or tiles; each becomes an object in Python. 64 million pixels in tiles of 256 x 256 have about a thousand."""

_MAX_PART_PIXELS = 64_000_000

# Bytes per value of the field types 1 to 18.
_WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_INTEGERS = (1, 3, 4, 16)

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_OFFSETS, _ORIENTATION, _SAMPLES, _ROWS_PER_STRIP, _STRIP_BYTES, _PLANAR = 273, 274, 277, 278, 279, 284
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS = 322, 323, 324

# Tags that take part in making pixels; everything else (EXIF, profiles, Photoshop, GPS, sub-directories) is cut out.
_KEPT = frozenset(
    {
        _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, 266, _STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP,
        _STRIP_BYTES, _PLANAR, 292, 293, 317, 320, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, 325, 332, 338, 339,
        347, 512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531, 532,
    }
)  # fmt: skip

# none, CCITT (3), LZW, JPEG (old, new), Deflate (2), PackBits, CCITT (word-aligned). LZMA, Zstandard, LERC and others
# reserve memory as their data ask.
_COMPRESSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 32771, 32773, 32946)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Byte order and the widths in which classic TIFF and BigTIFF differ."""

    order: Literal["little", "big"]
    count: int  # bytes of the number of entries
    entry: int  # bytes of one entry
    offset: int  # bytes of an offset or an inline value

    def number(self, raw: bytes) -> int:
        return int.from_bytes(raw, self.order)


@dataclass(frozen=True, slots=True)
class _Entry:
    tag: int
    kind: int
    count: int
    raw: bytes  # the whole entry, as it is written

    def size(self) -> int:
        return _WIDTHS.get(self.kind, 1) * self.count


def read_tiff(data: bytes) -> Header:
    """Measure the first page of a TIFF; cut off its later pages and every tag that makes no pixels."""
    layout, start = _open(data)
    entries = _entries(data, layout, start)
    kept = [entry for tag, entry in sorted(entries.items()) if tag in _KEPT]
    if sum(entry.size() for entry in kept) > len(data):
        # The decoder copies the data of every tag; a thousand tags that share one block would fill the memory.
        raise damaged("TIFF", "its tags claim more data than the file has")
    values = _Values(data, layout, entries)
    width, height = values.one(_WIDTH), values.one(_HEIGHT)
    if width is None or height is None:
        raise damaged("TIFF", "its size is missing")
    compression = values.one(_COMPRESSION) or 1
    if compression not in _COMPRESSIONS:
        raise unsupported("TIFF", f"the compression {compression}")
    _check_parts(values, width, height)
    orientation = values.one(_ORIENTATION) or 1
    return Header(
        "TIFF",
        width,
        height,
        _with_directory(data, layout, start, kept),
        orientation if orientation in range(1, 9) else 1,
        depth=values.one(_BITS) or 1,
        inverted=values.one(_PHOTOMETRIC) == 0,
    )


class _Values:
    """Integer values of tags, read where they lie."""

    def __init__(self, data: bytes, layout: _Layout, entries: dict[int, _Entry]) -> None:
        self._data = data
        self._layout = layout
        self._entries = entries

    def count(self, tag: int) -> int:
        return self._entries[tag].count if tag in self._entries else 0

    def one(self, tag: int) -> int | None:
        """The first value of ``tag``, or None when there is no such tag or it holds no integers."""
        entry = self._entries.get(tag)
        if entry is None or entry.kind not in _INTEGERS or not entry.count:
            return None
        layout, width = self._layout, _WIDTHS[entry.kind]
        field = entry.raw[-layout.offset :]
        if entry.size() <= layout.offset:
            return layout.number(field[:width])
        start = layout.number(field)
        raw = self._data[start : start + width]
        return layout.number(raw) if len(raw) == width else None


def _open(data: bytes) -> tuple[_Layout, int]:
    order: Literal["little", "big"] = "little" if data[:2] == b"II" else "big"
    if int.from_bytes(data[2:4], order) == 43:
        if order == "big":
            raise unsupported("TIFF", "the layout for large files in big-endian order")  # Pillow does not know it
        layout, at = _Layout(order, 8, 20, 8), 8
    else:
        layout, at = _Layout(order, 2, 12, 4), 4
    start = layout.number(data[at : at + layout.offset])
    if start + layout.count > len(data):
        raise damaged("TIFF", "its directory lies behind its end")
    return layout, start


def _entries(data: bytes, layout: _Layout, start: int) -> dict[int, _Entry]:
    count = layout.number(data[start : start + layout.count])
    if not 0 < count <= _MAX_ENTRIES:
        raise damaged("TIFF", f"its directory has {count} tags")
    first = start + layout.count
    if first + count * layout.entry > len(data):
        raise damaged("TIFF", "it ends inside its directory")
    entries: dict[int, _Entry] = {}
    for index in range(count):
        raw = data[first + index * layout.entry : first + (index + 1) * layout.entry]
        tag, kind = layout.number(raw[:2]), layout.number(raw[2:4])
        entries[tag] = _Entry(tag, kind, layout.number(raw[4 : -layout.offset]), raw)
    return entries


def _check_parts(values: _Values, width: int, height: int) -> None:
    """Number and size of strips or tiles: the decoder reserves room for a whole one."""
    parts = max(values.count(_STRIP_OFFSETS), values.count(_TILE_OFFSETS))
    if parts > _MAX_PARTS:
        raise TooLarge(
            f"The TIFF picture has {parts} strips or tiles; at most {_MAX_PARTS} are accepted. Save it as PNG.",
            field="image",
        )
    if values.count(_TILE_OFFSETS):
        tile_width, tile_height = values.one(_TILE_WIDTH) or 0, values.one(_TILE_HEIGHT) or 0
        if not tile_width or not tile_height:
            raise damaged("TIFF", "the size of its tiles is missing")
        if tile_width * tile_height > _MAX_PART_PIXELS:
            raise damaged("TIFF", f"its tiles have {tile_width} x {tile_height} pixels")
        needed = -(-width // tile_width) * -(-height // tile_height)
    else:
        rows = min(values.one(_ROWS_PER_STRIP) or height, height) or 1
        needed = -(-height // rows)
    if parts < needed:
        raise damaged("TIFF", f"it has {parts} of {needed} strips or tiles")


def _with_directory(data: bytes, layout: _Layout, start: int, kept: list[_Entry]) -> bytes:
    """``data`` with the directory at ``start`` replaced by ``kept``, which is no longer, and no next page."""
    directory = b"".join(
        (
            len(kept).to_bytes(layout.count, layout.order),
            *(entry.raw for entry in kept),
            bytes(layout.offset),
        )
    )
    return b"".join((memoryview(data)[:start], directory, memoryview(data)[start + len(directory) :]))
