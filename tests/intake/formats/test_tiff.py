from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, TooLarge, Unsupported
from foveola.intake.formats.tiff import read_tiff
from foveola.intake.image import decode
from tests.intake.pictures import COLOURS, encoded, grey_tiff

GREY = np.array([[0, 1, 128], [200, 254, 255]], np.uint8)


def grey(levels: Any) -> list[Any]:
    return np.repeat(np.asarray(levels)[..., None], 3, axis=-1).tolist()


@pytest.mark.parametrize("order", ["<", ">"])
def test_byte_orders(order: str) -> None:
    assert decode(grey_tiff(GREY, order=order)).rgb.tolist() == grey(GREY)


def test_the_layout_for_large_files() -> None:
    assert decode(grey_tiff(GREY, big=True)).rgb.tolist() == grey(GREY)
    with pytest.raises(Unsupported, match="The TIFF picture has the layout for large files in big-endian order"):
        decode(grey_tiff(GREY, order=">", big=True))


@pytest.mark.parametrize(
    "compression", [None, "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits", "group3", "group4", "jpeg"]
)
def test_compressions(compression: str | None) -> None:
    image = Image.fromarray(COLOURS).resize((48, 32), Image.Resampling.NEAREST)
    if compression in ("group3", "group4"):
        image = image.convert("1")
    options = {"quality": 98} if compression == "jpeg" else {}
    rgb = decode(encoded(image, "TIFF", compression=compression, **options)).rgb
    difference = np.abs(rgb.astype(int) - np.asarray(image.convert("RGB")).astype(int))
    assert (difference.mean() < 6) if compression == "jpeg" else (difference.max() == 0)


def test_sixteen_bits() -> None:
    deep = np.array([[0, 128, 129], [32768, 65407, 65535]], np.uint16)
    expected = grey([[0, 0, 1], [128, 255, 255]])
    assert decode(grey_tiff(deep)).rgb.tolist() == expected
    assert decode(grey_tiff(deep, order=">")).rgb.tolist() == expected


def test_white_may_be_zero() -> None:
    assert decode(grey_tiff(GREY, t262=(3, [0]))).rgb.tolist() == grey(255 - GREY)
    deep = np.array([[0, 65535, 257]], np.uint16)
    assert decode(grey_tiff(deep, t262=(3, [0]))).rgb.tolist() == grey([[255, 0, 254]])


def test_twelve_bits_are_scaled_to_their_own_range() -> None:
    # Two samples in three bytes: 0xFFF, 0x800.
    data = grey_tiff(np.frombuffer(b"\xff\xf8\x00", np.uint8)[None], t256=(3, [2]), t258=(3, [12]))
    assert decode(data).rgb.tolist() == grey([[255, 128]])


def test_floating_point_between_0_and_1() -> None:
    values = np.array([[0, 0.5, 1]], np.float32)
    assert decode(grey_tiff(values)).rgb.tolist() == grey([[0, 128, 255]])
    assert decode(grey_tiff(values, t262=(3, [0]))).rgb.tolist() == grey([[255, 128, 0]])


@pytest.mark.parametrize("value", [1.01, -0.01, float("nan"), float("inf"), 1e30])
def test_floating_point_without_an_agreed_range(value: float) -> None:
    with pytest.raises(Unsupported, match="floating-point values outside 0 to 1, which have no agreed brightness"):
        decode(grey_tiff(np.array([[0, value]], np.float32)))


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint32])
def test_integers_without_an_agreed_range(dtype: type) -> None:
    with pytest.raises(Unsupported, match="The TIFF picture has pixels of 32-bit or signed integers, which is not"):
        decode(grey_tiff(np.array([[0, 5]], dtype)))


def test_lab_becomes_colours() -> None:
    # CIE L*a*b* of sRGB red under D50 is about (54, 81, 70); the file holds a and b as signed bytes.
    image = Image.frombytes("LAB", (2, 1), bytes([138, 81, 70, 255, 0, 0]))
    red, white = decode(encoded(image, "TIFF")).rgb[0].astype(int)
    assert np.abs(red - (255, 0, 0)).max() < 10
    assert np.abs(white - 255).max() <= 1


def test_later_pages_and_other_tags_are_cut_off() -> None:
    block = Image.Exif()
    block[0x010E] = "secret " * 50
    first, second = Image.new("L", (4, 4), 10), Image.new("L", (4, 4), 200)
    data = encoded(first, "TIFF", save_all=True, append_images=[second], exif=block)
    header = read_tiff(data)
    assert decode(data).rgb.tolist() == grey(np.full((4, 4), 10))
    page = Image.open(io.BytesIO(header.body))
    assert page.n_frames == 1
    assert 0x010E not in page.tag_v2
    assert 0x010E in Image.open(io.BytesIO(data)).tag_v2


def test_a_directory_that_leads_in_a_circle() -> None:
    data = bytearray(grey_tiff(GREY))
    at = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[at : at + 2], "little")
    data[at + 2 + 12 * count : at + 6 + 12 * count] = data[4:8]
    assert decode(bytes(data)).rgb.tolist() == grey(GREY)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"t256": None}, "its size is missing"),
        ({"t256": (2, [3])}, "its size is missing"),
        ({"t256": (3, [0])}, "it has 0 x 2 pixels"),
        ({"t278": (3, [1])}, "it has 1 of 2 strips or tiles"),
        ({"t273": None}, "it has 0 of 1 strips or tiles"),
        ({"t273": None, "t324": (4, [8])}, "the size of its tiles is missing"),
        (
            {"t273": None, "t322": (4, [65520]), "t323": (4, [65520]), "t324": (4, [8])},
            "its tiles have 65520 x 65520 pixels",
        ),
        ({"t273": (4, [4_000_000_000])}, "cut off or broken"),
        ({"t258": (3, [7])}, "cut off or broken"),
        ({"t277": (4, [2**31])}, "cut off or broken"),
    ],
)
def test_a_directory_that_cannot_be(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(BadImage) as caught:
        decode(grey_tiff(GREY, **changes))
    assert caught.value.message.startswith("The TIFF picture is damaged: ")
    assert text in caught.value.message


@pytest.mark.parametrize("compression", [34925, 50000, 50001, 34887, 1234])
def test_compressions_that_are_not_served(compression: int) -> None:
    with pytest.raises(Unsupported, match=f"The TIFF picture has the compression {compression}, which is not accepted"):
        decode(grey_tiff(GREY, t259=(3, [compression])))


def test_a_flood_of_strips() -> None:
    with pytest.raises(TooLarge, match="has 70000 strips or tiles; at most 65536 are accepted"):
        decode(grey_tiff(GREY, t273=(4, [8] * 70_000)))


def test_tags_that_claim_the_file_many_times_over() -> None:
    data = grey_tiff(GREY, t320=(3, [0] * 300), t325=(4, [0] * 300))
    assert read_tiff(data).width == 3
    at = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[at : at + 2], "little")
    raw = bytearray(data)
    for index in range(count):
        entry = at + 2 + 12 * index
        if int.from_bytes(raw[entry : entry + 2], "little") in (320, 325):
            raw[entry + 4 : entry + 8] = (len(data) // 4).to_bytes(4, "little")
    with pytest.raises(BadImage, match="its tags claim more data than the file has"):
        decode(bytes(raw))


@pytest.mark.parametrize("end", [4, 7, 9, 12, 30])
def test_an_end_too_early(end: int) -> None:
    data = encoded(COLOURS, "TIFF", compression="tiff_lzw")
    with pytest.raises(BadImage, match=r"^The TIFF picture is damaged: "):
        decode(data[:end])


@pytest.mark.parametrize("count", [0, 1025, 65535])
def test_a_directory_with_an_impossible_number_of_tags(count: int) -> None:
    data = bytearray(grey_tiff(GREY))
    at = int.from_bytes(data[4:8], "little")
    data[at : at + 2] = count.to_bytes(2, "little")
    with pytest.raises(BadImage, match=f"its directory has {count} tags"):
        decode(bytes(data))
