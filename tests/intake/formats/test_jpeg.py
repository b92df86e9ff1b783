from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, Unsupported
from foveola.intake.formats.jpeg import read_jpeg
from foveola.intake.image import decode
from tests.intake.pictures import encoded, jpeg_segment

PIXELS = np.tile(np.arange(0, 240, 5, dtype=np.uint8)[None, :, None], (32, 1, 3))
PLAIN = encoded(PIXELS, "JPEG", quality=90)
SCAN = PLAIN.index(b"\xff\xda")


def with_segments(*segments: bytes) -> bytes:
    return PLAIN[:2] + b"".join(segments) + PLAIN[2:]


def refusal(data: bytes) -> str:
    with pytest.raises(BadImage) as caught:
        read_jpeg(data)
    return caught.value.message


def test_size_and_untouched_pixels() -> None:
    header = read_jpeg(PLAIN)
    assert (header.width, header.height, header.orientation) == (48, 32, 1)
    assert header.body == PLAIN


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_what_says_nothing_about_pixels_is_left_out(mode: str, progressive: bool) -> None:
    image = Image.fromarray(PIXELS).convert(mode)
    data = encoded(image, "JPEG", quality=90, progressive=progressive)
    clutter = [jpeg_segment(marker, b"secret" * 1000) for marker in (*range(0xE1, 0xEE), 0xEF, 0xFE)]
    header = read_jpeg(data[:2] + b"".join(clutter) + data[2:])
    assert b"secret" not in header.body
    assert header.body == read_jpeg(data).body
    assert np.array_equal(decode(data).rgb, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def test_fill_bytes_and_junk_between_segments_are_skipped() -> None:
    data = PLAIN[:2] + b"\xff\xff\xff" + jpeg_segment(0xFE, b"x") + b"junk\xff\0" + PLAIN[2:]
    assert read_jpeg(data).body == PLAIN


@pytest.mark.parametrize("end", [3, 10, 30, SCAN - 3])
def test_an_end_in_the_header(end: int) -> None:
    assert refusal(PLAIN[:end]).startswith("The JPEG picture is damaged: it ends ")


@pytest.mark.parametrize("end", [SCAN + 1, SCAN + 20, len(PLAIN) - 2])
def test_an_end_in_the_picture(end: int) -> None:
    with pytest.raises(BadImage, match=r"^The JPEG picture is damaged: "):
        decode(PLAIN[:end])


def test_a_segment_with_an_impossible_length() -> None:
    assert "inside a header segment" in refusal(PLAIN[:2] + b"\xff\xe1\0\1" + PLAIN[2:])


def test_two_frames() -> None:
    frame = jpeg_segment(0xC0, struct.pack(">BHHB", 8, 32, 48, 1) + b"\1\x11\0")
    assert "it has two frame headers" in refusal(with_segments(frame))


def test_a_scan_before_the_frame() -> None:
    assert "comes before its size" in refusal(PLAIN[:2] + PLAIN[SCAN:])


def test_a_flood_of_segments_ends_early() -> None:
    assert "it has more than 5000 header segments" in refusal(with_segments(jpeg_segment(0xFE, b"") * 6000))
    assert "it has more than 5000 header segments" in refusal(PLAIN[:2] + b"\xff" * 6000 + PLAIN[2:])


@pytest.mark.parametrize(
    ("depth", "components", "text"), [(12, 3, "12 bits per sample"), (8, 2, "2 colour components")]
)
def test_kinds_that_are_not_served(depth: int, components: int, text: str) -> None:
    frame = jpeg_segment(0xC1, struct.pack(">BHHB", depth, 8, 8, components) + bytes(9))
    with pytest.raises(Unsupported, match=f"The JPEG picture has {text}, which is not accepted"):
        read_jpeg(b"\xff\xd8" + frame + b"\xff\xda\0\2")


def test_thousands_of_scans_over_a_large_picture_are_refused_before_decoding() -> None:
    frame = jpeg_segment(0xC2, struct.pack(">BHHB", 8, 6000, 6000, 1) + b"\1\x11\0")
    scan = jpeg_segment(0xDA, b"\1\1\0\0\x3f\0") + b"\0"
    data = bytes(6000 * 6000 // 64 // 8 + 1)
    assert "far more scans than any encoder writes" in refusal(b"\xff\xd8" + frame + scan * 1000 + data)
    assert read_jpeg(b"\xff\xd8" + frame + scan * 30 + data).width == 6000


def test_a_size_that_the_data_cannot_fill() -> None:
    data = bytearray(PLAIN)
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 8000, 7999)
    assert "it has too few bytes for 7999 x 8000 pixels" in refusal(bytes(data))


def test_an_ordinary_progressive_picture_has_few_scans() -> None:
    data = encoded(PIXELS, "JPEG", progressive=True)
    assert 5 < data.count(b"\xff\xda") < 20
    assert read_jpeg(data).height == 32


def test_of_a_multi_picture_file_the_first_is_shown() -> None:
    first, second = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (16, 16), "blue")
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    picture = decode(data)
    assert picture.format == "JPEG"
    assert np.abs(picture.rgb.astype(int) - (255, 0, 0)).max() <= 3
