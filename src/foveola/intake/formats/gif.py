"""GIF: a screen, then extensions and frames as chains of small blocks (GIF89a specification)."""

from __future__ import annotations

from foveola.intake.formats.header import Header, damaged

_MAX_BLOCKS = 100_000
_EXTENSION, _FRAME, _CONTROL = 0x21, 0x2C, 0xF9


def read_gif(data: bytes) -> Header:
    """Measure a GIF; keep the screen, the first frame and its control block (it names the transparent colour)."""
    if len(data) < 13:
        raise damaged("GIF", "it ends inside its header")
    position = 13 + _table(data[10])
    screen = data[:position]
    control = b""
    blocks = 0
    while data[position : position + 1] == b"\x21":
        end, count = _chain_end(data, position + 2)
        blocks += count
        if blocks > _MAX_BLOCKS:
            raise damaged("GIF", f"it has more than {_MAX_BLOCKS} blocks before its picture")
        if data[position + 1] == _CONTROL:
            control = data[position:end]
        position = end
    frame = data[position : position + 10]
    if len(frame) < 10 or frame[0] != _FRAME:
        raise damaged("GIF", "it holds no picture")
    left, top, width, height = (int.from_bytes(frame[i : i + 2], "little") for i in (1, 3, 5, 7))
    if not width or not height:
        raise damaged("GIF", f"its first frame has {width} x {height} pixels")
    screen_width, screen_height = (int.from_bytes(data[i : i + 2], "little") for i in (6, 8))
    body = b"".join((screen, control, memoryview(data)[position:]))
    # Viewers enlarge a screen that is too small for its frame.
    size = (max(screen_width, left + width), max(screen_height, top + height))
    box = (left, top, left + width, top + height)
    return Header("GIF", *size, body, frame=None if box == (0, 0, *size) else box)


def _table(flags: int) -> int:
    """Bytes of the colour table that ``flags`` announce."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _chain_end(data: bytes, position: int) -> tuple[int, int]:
    """Position behind a chain of blocks (each a length and as many bytes; length 0 ends it), and their number."""
    for count in range(_MAX_BLOCKS + 1):
        if position >= len(data):
            raise damaged("GIF", "it ends before its picture")
        length = data[position]
        position += 1 + length
        if not length:
            return position, count + 1
    return position, _MAX_BLOCKS + 1
