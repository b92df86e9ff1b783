from __future__ import annotations

import pytest

from foveola.exchange import BadImage, Unsupported
from foveola.intake.formats import READERS, sniff
from tests.intake.pictures import COLOURS, encoded

ALL = tuple(READERS)


@pytest.mark.parametrize("format", ALL)
def test_every_served_format(format: str) -> None:
    assert sniff(encoded(COLOURS, format), ALL) == format


@pytest.mark.parametrize("mark", [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"])
def test_every_tiff(mark: bytes) -> None:
    assert sniff(mark + bytes(20), ALL) == "TIFF"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\0\0\0\x20ftypavif", "AVIF"), (b"\0\0\0\x20ftypheic", "HEIC"), (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"%PDF-1.7", "PDF"), (b"8BPS\0\1", "Photoshop"), (b"\0\0\1\0\1", "ICO"), (b"P6 1 1 255 abc", "PNM"),
        (b"qoif", "QOI"), (b"<svg xmlns", "SVG"), (b"<!DOCTYPE svg>", "HTML or XML"),
        (b"\0\0\2\0" + bytes(8), "CUR or TGA"),
    ],
)  # fmt: skip
def test_a_known_format_that_is_not_served_is_named(data: bytes, name: str) -> None:
    with pytest.raises(Unsupported) as caught:
        sniff(data, ALL)
    assert caught.value.status == 415
    assert caught.value.message == (
        f"The file is {name}, which is not accepted here; send JPEG, PNG, WEBP, BMP, GIF, TIFF."
    )


def test_a_served_format_that_is_not_allowed() -> None:
    with pytest.raises(Unsupported, match=r"^The file is GIF, which is not accepted here; send JPEG, PNG\.$"):
        sniff(encoded(COLOURS, "GIF"), ("JPEG", "PNG"))


@pytest.mark.parametrize("data", [b"\0", b"hello", b"RIFF\0\0\0\0WAVE", b"\0\0\0\x20ftypisom", b"\xff\xd8"])
def test_anything_else(data: bytes) -> None:
    with pytest.raises(BadImage, match=r"^The bytes are no picture in a known format; send JPEG, PNG, WEBP"):
        sniff(data, ALL)


def test_nothing() -> None:
    with pytest.raises(BadImage, match=r"^The picture is empty: it has 0 bytes\.$"):
        sniff(b"", ALL)
