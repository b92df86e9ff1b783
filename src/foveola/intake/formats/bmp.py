"""BMP: a file header, an information header of one of several lengths, a palette, rows of pixels."""

from __future__ import annotations

from foveola.exchange import TooLarge
from foveola.intake.formats.header import Header, damaged, unsupported

_MAX_RLE_PIXELS = 4_000_000
"""Run-length coded BMP is decoded by Python code, about ten million pixels in a second."""

_RAW, _RLE8, _RLE4, _FIELDS, _ALPHA_FIELDS = 0, 1, 2, 3, 6


def read_bmp(data: bytes) -> Header:
    """Measure a BMP. Its bytes go to the decoder as they are: it has no metadata to speak of."""
    kind = int.from_bytes(data[14:18], "little")
    if len(data) < 14 + max(kind, 12) or kind < 12:
        raise damaged("BMP", "it ends inside its header")
    if kind == 12:
        return Header("BMP", int.from_bytes(data[18:20], "little"), int.from_bytes(data[20:22], "little"), data)
    if kind < 40:
        raise unsupported("BMP", f"a header of {kind} bytes")
    width = int.from_bytes(data[18:22], "little", signed=True)
    height = abs(int.from_bytes(data[22:26], "little", signed=True))  # negative: rows run downwards
    if width < 0:
        raise damaged("BMP", f"its width is {width}")
    compression = int.from_bytes(data[30:34], "little")
    if compression not in (_RAW, _RLE8, _RLE4, _FIELDS, _ALPHA_FIELDS):
        raise unsupported("BMP", f"the compression {compression}")
    if compression in (_RLE8, _RLE4) and width * height > _MAX_RLE_PIXELS:
        raise TooLarge(
            f"The run-length coded BMP picture has {width} x {height} pixels; at most {_MAX_RLE_PIXELS} are accepted "
            "in this coding. Save it as PNG.",
            field="image",
        )
    return Header("BMP", width, height, data)
