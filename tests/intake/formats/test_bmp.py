from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, TooLarge, Unsupported
from foveola.intake.formats.bmp import read_bmp
from foveola.intake.image import decode
from tests.intake.pictures import COLOURS, encoded

PLAIN = encoded(COLOURS, "BMP")


def bmp(width: int, height: int, bits: int, compression: int, data: bytes, palette: bytes = b"") -> bytes:
    offset = 54 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, len(palette) // 4, 0)
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + info + palette + data


PALETTE = bytes([0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0])  # red, green, blue as BGRX


def test_rows_upwards_and_downwards() -> None:
    assert np.array_equal(decode(PLAIN).rgb, COLOURS)
    rows = b"".join(row[:, ::-1].tobytes().ljust(12, b"\0") for row in COLOURS)
    assert np.array_equal(decode(bmp(3, -2, 24, 0, rows)).rgb, COLOURS)


def test_the_oldest_header() -> None:
    rows = b"".join(row[:, ::-1].tobytes().ljust(12, b"\0") for row in COLOURS[::-1])
    data = b"BM" + struct.pack("<IHHI", 26 + len(rows), 0, 0, 26) + struct.pack("<IHHHH", 12, 3, 2, 1, 24) + rows
    assert np.array_equal(decode(data).rgb, COLOURS)


@pytest.mark.parametrize(("compression", "bits", "data"), [(1, 8, b"\2\0\1\2\0\0\0\1"), (2, 4, b"\2\0\1\x20\0\0\0\1")])
def test_run_lengths(compression: int, bits: int, data: bytes) -> None:
    rgb = decode(bmp(3, 1, bits, compression, data, PALETTE)).rgb
    assert rgb.tolist() == [[[255, 0, 0], [255, 0, 0], [0, 0, 255]]]


def test_a_large_picture_in_run_lengths_is_refused_unread() -> None:
    with pytest.raises(TooLarge, match="The run-length coded BMP picture has 3000 x 3000 pixels; at most 4000000"):
        decode(bmp(3000, 3000, 8, 1, b"\0\1", PALETTE))


@pytest.mark.parametrize("end", [2, 16, 20, 53, len(PLAIN) - 4])
def test_an_end_too_early(end: int) -> None:
    with pytest.raises(BadImage, match=r"^The BMP picture is damaged: "):
        decode(PLAIN[:end])


@pytest.mark.parametrize("width", [0, -3])
def test_no_width(width: int) -> None:
    with pytest.raises(BadImage, match="BMP picture is damaged: it"):
        decode(bmp(width, 2, 24, 0, bytes(24)))


def test_what_is_not_served_is_named() -> None:
    with pytest.raises(Unsupported, match="The BMP picture has the compression 4, which is not accepted"):
        decode(bmp(3, 2, 24, 4, b""))
    with pytest.raises(Unsupported, match="a header of 16 bytes"):
        decode(b"BM" + bytes(12) + struct.pack("<I", 16) + bytes(40))


def test_the_size_needs_no_pixels() -> None:
    header = read_bmp(bmp(70_000, -50_000, 24, 0, b""))
    assert (header.width, header.height) == (70_000, 50_000)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_modes(mode: str) -> None:
    image = Image.fromarray(COLOURS).convert(mode)
    assert np.array_equal(decode(encoded(image, "BMP")).rgb, np.asarray(image.convert("RGB")))
