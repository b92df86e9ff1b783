from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from foveola.intake.formats.orientation import exif_orientation, upright, xmp_orientation
from foveola.intake.image import decode
from tests.intake.pictures import COLOURS, chunk, encoded, exif, jpeg_segment, png

XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>'
EACH = pytest.mark.parametrize("orientation", range(1, 9))


def reference(orientation: int) -> np.ndarray:
    """What Pillow's own exif_transpose makes of COLOURS."""
    image = Image.fromarray(COLOURS)
    image.getexif()[0x0112] = orientation
    return np.asarray(ImageOps.exif_transpose(image))


@EACH
def test_every_turn_and_mirror(orientation: int) -> None:
    turned = upright(COLOURS, orientation)
    assert np.array_equal(turned, reference(orientation))
    assert turned.flags.c_contiguous


@EACH
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
def test_the_tag_in_either_byte_order_and_width(orientation: int, order: str, kind: int) -> None:
    assert exif_orientation(exif(orientation, order, kind)) == orientation
    assert exif_orientation(b"Exif\0\0" + exif(orientation, order, kind)) == orientation


@pytest.mark.parametrize(
    "block",
    [
        b"", b"II*\0", b"XX*\0" + bytes(20), exif(6)[:-12], exif(0), exif(9), exif(6)[:8] + b"\xff\xff" + bytes(40),
        b"II*\0" + struct.pack("<I", 2**32 - 1),
        exif(6).replace(struct.pack("<HH", 0x112, 3), struct.pack("<HH", 0x112, 2)),
    ],
    ids=range(9),
)  # fmt: skip
def test_a_block_that_says_nothing_is_no_error(block: bytes) -> None:
    assert exif_orientation(block) is None


def test_xmp() -> None:
    assert xmp_orientation(XMP % 6) == 6
    assert xmp_orientation(b"<tiff:Orientation>3</tiff:Orientation>") == 3
    assert xmp_orientation(XMP % 9) is None
    assert xmp_orientation(b"") is None


def as_blocks(orientation: int) -> np.ndarray:
    """COLOURS in blocks of 16, so that lossy formats keep the middles, turned as a person sees it."""
    return reference(orientation).repeat(16, axis=0).repeat(16, axis=1)


BIG = COLOURS.repeat(16, axis=0).repeat(16, axis=1)


def check(data: bytes, orientation: int) -> None:
    picture = decode(data)
    expected = as_blocks(orientation)
    assert picture.rgb.shape == expected.shape
    assert picture.original == (expected.shape[1], expected.shape[0])
    middles = np.s_[8::16, 8::16]
    assert np.abs(picture.rgb[middles].astype(int) - expected[middles].astype(int)).max() <= 12


@EACH
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_on_every_path(orientation: int, format: str) -> None:
    block = Image.Exif()
    block[0x0112] = orientation
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}.get(format, {})
    check(encoded(BIG, format, exif=block, **options), orientation)


@EACH
def test_in_a_compressed_tiff(orientation: int) -> None:
    block = Image.Exif()
    block[0x0112] = orientation
    check(encoded(BIG, "TIFF", exif=block, compression="tiff_lzw"), orientation)


def test_xmp_counts_where_exif_is_silent() -> None:
    plain = encoded(BIG, "JPEG", quality=95, subsampling=0)
    xmp = jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP % 6)
    both = jpeg_segment(0xE1, b"Exif\0\0" + exif(3)) + xmp
    check(plain[:2] + xmp + plain[2:], 6)
    check(plain[:2] + both + plain[2:], 3)


def test_png_text_of_other_programs() -> None:
    rows = [row.tobytes() for row in BIG]
    itxt = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP % 8)
    raw = b"\nexif\n      32\n" + (b"Exif\0\0" + exif(5)).hex().encode() + b"\n"
    plain = chunk(b"tEXt", b"Raw profile type exif\0" + raw)
    packed = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw))
    for text, orientation in ((itxt, 8), (plain, 5), (packed, 5)):
        check(png(48, 32, 8, 2, rows, text), orientation)
    for broken in (b"Raw profile type exif\0zz", b"Raw profile type exif\0\n e 3 \xff\xff", b"Raw profile type exif"):
        check(png(48, 32, 8, 2, rows, chunk(b"tEXt", broken), chunk(b"zTXt", broken + b"\0\1")), 1)


def test_a_thumbnail_with_its_own_orientation_does_not_count() -> None:
    inner = encoded(BIG, "JPEG", exif=b"Exif\0\0" + exif(8))
    outer = encoded(BIG, "JPEG", quality=95, subsampling=0)
    check(outer[:2] + jpeg_segment(0xE5, inner[:60000]) + outer[2:], 1)


def test_pillow_agrees_on_the_files_used_here() -> None:
    image = Image.open(io.BytesIO(encoded(BIG, "JPEG", exif=b"Exif\0\0" + exif(6))))
    assert image.getexif()[0x0112] == 6
