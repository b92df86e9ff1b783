from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, TooLarge
from foveola.intake.formats.webp import read_webp
from foveola.intake.image import Limits, decode
from tests.intake.pictures import COLOURS, encoded

LOSSLESS = encoded(COLOURS, "WEBP", lossless=True)


def test_lossless_pixels_are_exact() -> None:
    assert np.array_equal(decode(LOSSLESS).rgb, COLOURS)


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 80}, {"quality": 80, "exif": b"II*\0"}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_size_in_every_kind_of_header(mode: str, options: dict[str, object]) -> None:
    header = read_webp(encoded(Image.new(mode, (301, 67)), "WEBP", **options))
    assert (header.width, header.height) == (301, 67)


def test_transparency_over_white() -> None:
    rgba = np.dstack([COLOURS, np.array([[255, 0, 255], [255, 255, 255]], np.uint8)])
    rgb = decode(encoded(rgba, "WEBP", lossless=True, exact=True)).rgb
    expected = COLOURS.copy()
    expected[0, 1] = 255
    assert np.array_equal(rgb, expected)


def test_of_an_animation_the_first_frame_is_shown() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert np.array_equal(decode(data).rgb, np.full((8, 8, 3), (255, 0, 0)))


@pytest.mark.parametrize("end", [12, 20, 29, len(LOSSLESS) - 1])
def test_an_end_too_early(end: int) -> None:
    with pytest.raises(BadImage, match=r"^The WebP picture is damaged: it ends after \d+ bytes"):
        decode(LOSSLESS[:end])


@pytest.mark.parametrize("name", [b"VP8 ", b"VP8L", b"VP8X", b"ABCD"])
def test_a_header_without_a_size(name: bytes) -> None:
    data = b"RIFF" + struct.pack("<I", 14) + b"WEBP" + name + struct.pack("<I", 2) + b"\0\0"
    with pytest.raises(BadImage, match="it has no readable header"):
        decode(data)


def test_a_canvas_is_measured_before_it_is_reserved() -> None:
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (16383).to_bytes(3, "little") * 2
    data = b"RIFF" + struct.pack("<I", 4 + len(canvas)) + b"WEBP" + canvas
    with pytest.raises(TooLarge, match="The picture has 16384 x 16384 pixels"):
        decode(data)


def test_pixels_count_twice() -> None:
    data = encoded(Image.new("RGB", (40, 30)), "WEBP", lossless=True)
    with pytest.raises(TooLarge, match="40 x 30 pixels; at most 1199 in all"):
        decode(data, Limits(max_pixels=2399))
    assert decode(data, Limits(max_pixels=2400)).original == (40, 30)


def test_a_size_that_the_frame_contradicts() -> None:
    data = bytearray(encoded(Image.new("RGBA", (40, 30), (1, 2, 3, 4)), "WEBP", quality=50))
    assert data[12:16] == b"VP8X"
    data[24] = 99
    with pytest.raises(BadImage, match="The WEBP picture is damaged"):
        decode(bytes(data))
