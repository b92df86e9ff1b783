from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, Unsupported
from foveola.intake.formats.png import read_png
from foveola.intake.image import decode
from tests.intake.pictures import COLOURS, SIGNATURE, chunk, encoded, png

WHITE = [255, 255, 255]
ROWS = [row.tobytes() for row in COLOURS]
PLAIN = png(3, 2, 8, 2, ROWS)


def refusal(data: bytes) -> str:
    with pytest.raises(BadImage) as caught:
        decode(data)
    assert caught.value.message.startswith("The PNG picture is damaged: ")
    return caught.value.message


def test_colours() -> None:
    assert np.array_equal(decode(PLAIN).rgb, COLOURS)


def test_only_what_makes_pixels_reaches_the_decoder() -> None:
    clutter = [
        chunk(b"tEXt", b"Comment\0secret"), chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"secret")),
        chunk(b"iTXt", b"Comment\0\0\0\0\0secret"), chunk(b"iCCP", b"secret"), chunk(b"cHRM", b"secret"),
        chunk(b"pHYs", b"s"), chunk(b"acTL", bytes(8)), chunk(b"gAMA", b""), chunk(b"prVt", b"secret"),
    ]  # fmt: skip
    data = png(3, 2, 8, 2, ROWS, *clutter, after=[*clutter, chunk(b"fdAT", bytes(4) + b"secret")])
    assert read_png(data).body == PLAIN
    assert np.array_equal(decode(data).rgb, COLOURS)


def test_palette_with_transparency_over_white() -> None:
    palette = chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255]))
    alpha = chunk(b"tRNS", bytes([255, 0, 128]))
    rgb = decode(png(3, 1, 8, 3, [bytes([0, 1, 2])], palette, alpha)).rgb
    assert rgb[0].tolist() == [[255, 0, 0], WHITE, [127, 127, 255]]


def test_a_transparent_palette_entry_beyond_the_list_is_opaque() -> None:
    palette = chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0]))
    rgb = decode(png(2, 1, 8, 3, [bytes([0, 1])], palette, chunk(b"tRNS", b"\0"))).rgb
    assert rgb[0].tolist() == [WHITE, [0, 255, 0]]


@pytest.mark.parametrize(
    ("depth", "row", "levels"),
    [
        (1, bytes([0b0101_0000]), [0, 255, 0, 255]),
        (2, bytes([0b00_01_10_11]), [0, 85, 170, 255]),
        (4, bytes([0x0F, 0x35]), [0, 255, 51, 85]),
        (8, bytes([0, 1, 200, 255]), [0, 1, 200, 255]),
        (16, struct.pack(">4H", 0, 257, 0x8000, 65535), [0, 1, 128, 255]),
    ],
)
def test_grey_of_every_depth(depth: int, row: bytes, levels: list[int]) -> None:
    rgb = decode(png(4, 1, depth, 0, [row])).rgb
    assert rgb[0].tolist() == [[level] * 3 for level in levels]


@pytest.mark.parametrize(
    ("depth", "row", "key", "levels"),
    [
        (1, bytes([0b0100_0000]), 0, [255, 255]),
        (2, bytes([0b10_01_0000]), 2, [255, 85]),
        (4, bytes([0x35]), 3, [255, 85]),
        (8, bytes([7, 8]), 7, [255, 8]),
        (16, struct.pack(">2H", 1000, 1001), 1000, [255, 4]),
    ],
)
def test_one_transparent_grey(depth: int, row: bytes, key: int, levels: list[int]) -> None:
    rgb = decode(png(2, 1, depth, 0, [row], chunk(b"tRNS", struct.pack(">H", key)))).rgb
    assert rgb[0].tolist() == [[level] * 3 for level in levels]


def test_one_transparent_colour() -> None:
    key = chunk(b"tRNS", struct.pack(">3H", 1, 2, 3))
    assert decode(png(2, 1, 8, 2, [bytes([1, 2, 3, 1, 2, 4])], key)).rgb[0].tolist() == [WHITE, [1, 2, 4]]
    deep = chunk(b"tRNS", struct.pack(">3H", 0x0102, 0x0203, 0x0304))
    row = struct.pack(">6H", 0x0102, 0x0203, 0x0304, 0x1102, 0x0203, 0x0304)
    assert decode(png(2, 1, 16, 2, [row], deep)).rgb[0].tolist() == [WHITE, [0x11, 2, 3]]


def test_a_transparent_grey_that_is_too_short_is_ignored() -> None:
    assert decode(png(1, 1, 8, 0, [b"\7"], chunk(b"tRNS", b"\0"))).rgb.tolist() == [[[7, 7, 7]]]


@pytest.mark.parametrize(("depth", "form"), [(8, ">4B"), (16, ">4H")])
def test_grey_with_alpha(depth: int, form: str) -> None:
    top = (1 << depth) - 1
    rgb = decode(png(2, 1, depth, 4, [struct.pack(form, 0, top, 0, 0)])).rgb
    assert rgb[0].tolist() == [[0, 0, 0], WHITE]


@pytest.mark.parametrize(("depth", "form"), [(8, ">8B"), (16, ">8H")])
def test_colour_with_alpha(depth: int, form: str) -> None:
    top = (1 << depth) - 1
    rgb = decode(png(2, 1, depth, 6, [struct.pack(form, top, 0, 0, top, top, 0, 0, 0)])).rgb
    assert rgb[0].tolist() == [[255, 0, 0], WHITE]


def test_sixteen_bit_colour() -> None:
    row = struct.pack(">3H", 0xFFFF, 0x8000, 0)
    assert decode(png(1, 1, 16, 2, [row])).rgb.tolist() == [[[255, 128, 0]]]


def test_of_an_animation_the_default_picture_is_shown() -> None:
    frames = [np.full((4, 4, 3), level, np.uint8) for level in (10, 200)]
    data = encoded(Image.fromarray(frames[0]), "PNG", save_all=True, append_images=[Image.fromarray(frames[1])])
    assert b"acTL" in data
    assert np.array_equal(decode(data).rgb, frames[0])


@pytest.mark.parametrize("end", range(8, len(PLAIN) - 12, 5))
def test_an_end_before_the_last_row(end: int) -> None:
    assert refusal(PLAIN[:end])


def test_a_missing_end_mark_is_forgiven() -> None:
    for cut in range(1, 13):
        assert np.array_equal(decode(PLAIN[:-cut]).rgb, COLOURS)


@pytest.mark.parametrize("name", [b"IHDR", b"IDAT"])
def test_a_wrong_checksum(name: bytes) -> None:
    data = bytearray(PLAIN)
    at = PLAIN.index(name)
    data[at + 4 + int.from_bytes(PLAIN[at - 4 : at], "big")] ^= 1
    assert "the checksum of its data does not fit" in refusal(bytes(data))


def test_too_few_rows() -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 300, 8, 2, 0, 0, 0))
    assert "it has fewer rows than its header promises" in refusal(SIGNATURE + header + PLAIN[33:])


@pytest.mark.parametrize("kind", [0, 2, 3, 4, 6])
def test_a_black_last_row_is_no_missing_row(kind: int) -> None:
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    palette = [chunk(b"PLTE", bytes(6))] if kind == 3 else []
    for depth in (1, 2, 4, 8, 16) if kind == 0 else (1, 8) if kind == 3 else (8, 16):
        row = bytes((5 * depth * samples + 7) // 8)
        assert decode(png(5, 3, depth, kind, [row] * 3, *palette)).rgb.shape == (3, 5, 3)
        assert "fewer rows" in refusal(png(5, 3, depth, kind, [row] * 2, *palette))


def test_interlaced_rows() -> None:
    pixels = np.random.default_rng(0).integers(1, 255, (13, 11), dtype=np.uint8)
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    rows = [row.tobytes() for x, y, dx, dy in passes for row in pixels[y::dy, x::dx]]
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 11, 13, 8, 0, 0, 0, 1))

    def data(count: int) -> bytes:
        inflated = b"".join(b"\0" + row for row in rows[:count])
        return SIGNATURE + header + chunk(b"IDAT", zlib.compress(inflated)) + chunk(b"IEND", b"")

    assert np.array_equal(decode(data(len(rows))).rgb[..., 0], pixels)
    for count in (len(rows) - 1, len(rows) - 6, 3):
        assert "fewer rows" in refusal(data(count))


def test_without_header_or_data() -> None:
    assert "does not begin with its header" in refusal(SIGNATURE + PLAIN[33:])
    assert "holds no picture data" in refusal(SIGNATURE + PLAIN[8:33])
    assert "its header has a wrong length" in refusal(SIGNATURE + chunk(b"IHDR", b"") + PLAIN[33:])


def test_without_palette() -> None:
    assert "its palette is missing" in refusal(png(2, 1, 8, 3, [bytes([0, 1])]))


def test_the_variant_of_a_phone_maker_is_not_guessed_at() -> None:
    with pytest.raises(Unsupported, match="Apple's private variant"):
        decode(SIGNATURE + chunk(b"CgBI", bytes(4)) + PLAIN[8:])


def test_a_flood_of_chunks_ends_early() -> None:
    flood = chunk(b"teXt", b"") * 100_001
    assert "it has more than 100000 parts" in refusal(PLAIN[:33] + flood + PLAIN[33:])
