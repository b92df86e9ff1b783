"""Picture files before they are decoded: one file per format, each reads the header and prepares the bytes.

A reader believes nothing. It measures the picture, finds its orientation, checks what a hostile file would inflate,
and hands on only the bytes that make pixels: comments, profiles, thumbnails, later frames and pages never reach the
decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foveola.exchange import BadImage, Unsupported
from foveola.intake.formats.bmp import read_bmp
from foveola.intake.formats.gif import read_gif
from foveola.intake.formats.header import Header
from foveola.intake.formats.jpeg import read_jpeg
from foveola.intake.formats.png import read_png
from foveola.intake.formats.tiff import read_tiff
from foveola.intake.formats.webp import read_webp

READERS: Mapping[str, Callable[[bytes], Header]] = {
    "JPEG": read_jpeg,
    "PNG": read_png,
    "WEBP": read_webp,
    "BMP": read_bmp,
    "GIF": read_gif,
    "TIFF": read_tiff,
}
"""What can be read, by Pillow's name of the format."""

_SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"BM", "BMP"),
)

# Recognised only to say what came.
_FOREIGN = (
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\1\0", "ICO"),
    (b"\0\0\2\0", "CUR or TGA"),
    (b"8BPS", "Photoshop"),
    (b"%PDF", "PDF"),
    (b"qoif", "QOI"),
    (b"<svg", "SVG"),
    (b"<?xml", "XML or SVG"),
    (b"<!DOCTYPE", "HTML or XML"),
    (b"<html", "HTML"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    *((b"P%d" % digit, "PNM") for digit in range(1, 8)),
)
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"hevc": "HEIC"}


def sniff(data: bytes, allowed: tuple[str, ...]) -> str:
    """The format of ``data`` by its first bytes; a file's name or content type plays no part.

    Raises Unsupported for a known format that is not among ``allowed``, BadImage for anything else.
    """
    if not data:
        raise BadImage("The picture is empty: it has 0 bytes.", field="image")
    name = next((name for signature, name in _SIGNATURES if data.startswith(signature)), None)
    if name is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        name = "WEBP"
    if name in allowed:
        return name
    if name is None and data[4:8] == b"ftyp":
        name = _BRANDS.get(data[8:12])
    if name is None:
        name = next((name for signature, name in _FOREIGN if data.startswith(signature)), None)
    known = ", ".join(allowed)
    if name is not None:
        raise Unsupported(f"The file is {name}, which is not accepted here; send {known}.", field="image")
    raise BadImage(f"The bytes are no picture in a known format; send {known}.", field="image")
