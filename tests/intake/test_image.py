from __future__ import annotations

import io
import random
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, Refusal, TooLarge, Unsupported
from foveola.intake.image import FORMATS, Limits, Picture, decode, measure
from tests.intake.pictures import COLOURS, encoded, exif

LOSSLESS = {"PNG": {}, "BMP": {}, "GIF": {}, "TIFF": {}, "WEBP": {"lossless": True}}


def photo(width: int, height: int) -> Image.Image:
    """Shapes, edges and grain, so that a decoder has something to get wrong."""
    y, x = np.mgrid[0:height, 0:width]
    waves = 127 + 60 * np.sin(x / 23) + 50 * np.sin(y / 31 + x / 90)
    grain = np.random.default_rng(0).normal(0, 6, (height, width))
    red = waves + grain
    red[(x // 97 + y // 71) % 5 == 0] = 30
    channels = np.stack([red, np.roll(red, 40, axis=1), 255 - red], axis=-1)
    return Image.fromarray(channels.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("format", LOSSLESS)
def test_lossless_formats_give_the_same_pixels(format: str) -> None:
    picture = decode(encoded(COLOURS, format, **LOSSLESS[format]))
    assert picture.format == format
    assert picture.original == (3, 2)
    assert picture.rgb.dtype == np.uint8
    assert picture.rgb.flags.c_contiguous
    assert np.array_equal(picture.rgb, COLOURS)


def test_jpeg_gives_the_pixels_of_the_library() -> None:
    data = encoded(photo(300, 200), "JPEG", quality=85)
    assert np.array_equal(decode(data).rgb, np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("format", FORMATS)
def test_one_pixel(format: str) -> None:
    rgb = decode(encoded(np.full((1, 1, 3), 255, np.uint8), format)).rgb
    assert rgb.tolist() == [[[255, 255, 255]]]


def cmyk(form: str) -> Image.Image:
    """Red, green, blue, black and white in print colours."""
    inks = [(0, 255, 255, 0), (255, 0, 255, 0), (255, 255, 0, 0), (0, 0, 0, 255), (0, 0, 0, 0)]
    image = Image.new("CMYK", (80, 16))
    for index, ink in enumerate(inks):
        image.paste(ink, (16 * index, 0, 16 * index + 16, 16))
    return image


@pytest.mark.parametrize("format", ["JPEG", "TIFF"])
def test_print_colours(format: str) -> None:
    options = {"quality": 98} if format == "JPEG" else {}
    rgb = decode(encoded(cmyk(format), format, **options)).rgb[8, 8::16].astype(int)
    expected = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)]
    assert np.abs(rgb - expected).max() <= 4


MODES = {"PNG": ("1", "L", "LA", "P", "RGBA"), "TIFF": ("1", "L", "LA", "P", "PA", "RGBA")}


@pytest.mark.parametrize(("format", "mode"), [(format, mode) for format, modes in MODES.items() for mode in modes])
def test_modes_over_white(format: str, mode: str) -> None:
    rgba = np.dstack([COLOURS, np.array([[255, 0, 255], [128, 255, 64]], np.uint8)])
    image = Image.fromarray(rgba)
    image = image.convert("RGB").convert(mode) if mode in ("1", "L", "P") else image.convert(mode)
    data = encoded(image, format)
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(Image.open(io.BytesIO(data)).convert("RGBA"))
    assert np.abs(decode(data).rgb.astype(int) - np.asarray(white.convert("RGB")).astype(int)).max() <= 1


def test_bands_leave_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    rgba = np.random.default_rng(1).integers(0, 256, (50, 20, 4), dtype=np.uint8)
    data = encoded(rgba, "PNG")
    whole = decode(data).rgb
    monkeypatch.setattr("foveola.intake.colour._BAND_PIXELS", 130)
    assert np.array_equal(decode(data).rgb, whole)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_limits_are_held_from_the_header(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(np.zeros((20, 30, 3), np.uint8), format)
    monkeypatch.setattr("foveola.intake.image._DECODERS", {})  # decoding would fail
    weight = 2 if format == "WEBP" else 1
    with pytest.raises(TooLarge) as caught:
        decode(data, Limits(max_pixels=599 * weight))
    assert caught.value.status == 413
    assert caught.value.message == (
        "The picture has 30 x 20 pixels; at most 599 in all and 32767 along a side are accepted. Shrink it."
    )
    with pytest.raises(TooLarge, match="at most 64000000 in all and 29 along a side|at most 32000000 in all and 29"):
        decode(data, Limits(max_side=29))
    assert measure(data, Limits(max_pixels=600 * weight, max_side=30)).upright_size == (30, 20)


def test_bytes_are_counted_first() -> None:
    with pytest.raises(
        TooLarge, match=r"^The picture has 21 bytes; at most 20 are accepted\. Compress or shrink it\.$"
    ):
        decode(b"x" * 21, Limits(max_bytes=20))


@pytest.mark.parametrize("size", [(401, 2), (2, 401), (201, 1), (1, 5000)])
def test_an_extreme_ratio_says_why(size: tuple[int, int]) -> None:
    with pytest.raises(BadImage) as caught:
        decode(encoded(Image.new("RGB", size), "PNG"))
    assert caught.value.message == (
        f"The picture has {size[0]} x {size[1]} pixels; one side may be at most 200 times the other. "
        "Crop it, or cut it into several pictures."
    )


@pytest.mark.parametrize("size", [(400, 2), (1, 200), (26, 28)])
def test_odd_shapes_within_the_ratio(size: tuple[int, int]) -> None:
    assert decode(encoded(Image.new("RGB", size), "PNG")).original == size


def test_the_size_is_that_after_orientation() -> None:
    data = encoded(np.zeros((20, 30, 3), np.uint8), "JPEG", exif=b"Exif\0\0" + exif(6))
    assert decode(data).original == (20, 30)
    assert measure(data).upright_size == (20, 30)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_pixels": 0}, "max_pixels is 0; it must lie between 1 and 89000000"),
        ({"max_pixels": 10**9}, "max_pixels is 1000000000; it must lie between 1 and 89000000"),
        ({"max_side": 0}, "max_bytes, max_side and max_ratio are at least 1"),
        ({"formats": ("JPEG", "PSD")}, "formats holds PSD; known are JPEG, PNG, WEBP, BMP, GIF, TIFF"),
    ],
)
def test_limits_that_cannot_be_held(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Limits(**options)


def test_formats_can_be_narrowed() -> None:
    with pytest.raises(Unsupported):
        decode(encoded(COLOURS, "BMP"), Limits(formats=("JPEG",)))


# --- broken files -----------------------------------------------------------------------------------------------------


def seeds() -> Iterator[tuple[str, bytes]]:
    image = photo(40, 30)
    for format in FORMATS:
        yield format, encoded(image, format)
    yield "progressive", encoded(image, "JPEG", progressive=True, exif=b"Exif\0\0" + exif(6))
    yield "palette", encoded(image.quantize(16), "PNG", transparency=3)
    yield "lzw", encoded(image, "TIFF", compression="tiff_lzw")
    yield "jpeg in tiff", encoded(image, "TIFF", compression="jpeg")
    yield "alpha", encoded(image.convert("RGBA"), "WEBP", exif=exif(3))
    yield "animation", encoded(image, "GIF", save_all=True, append_images=[image.rotate(90)])


def broken(data: bytes, chance: random.Random) -> bytes:
    raw = bytearray(data)
    kind = chance.randrange(4)
    if kind == 0:
        return data[: chance.randrange(len(data))]
    if kind == 1:
        at = chance.randrange(len(data))
        return data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
    limit = len(raw) if kind == 2 else min(len(raw), 120)  # headers break in the most interesting ways
    for _ in range(chance.randrange(1, 4)):
        raw[chance.randrange(limit)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(raw)


def assert_clean(message: str) -> None:
    """No address, no path, no library's words in what a client reads."""
    assert not re.search(r"0x|/|\\|Traceback|PIL|Pillow|libtiff|Error|<[a-z_]|None", message), message
    assert message[0].isupper()
    assert message.endswith(".")


@pytest.mark.parametrize(("name", "data"), list(seeds()), ids=[name for name, _ in seeds()])
def test_whatever_breaks_ends_in_a_picture_or_a_refusal(name: str, data: bytes) -> None:
    chance = random.Random(name)
    limits = Limits(max_pixels=1_000_000)
    outcomes = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is printed for a client's broken file
        for _ in range(250):
            try:
                picture = decode(broken(data, chance), limits)
            except (BadImage, TooLarge, Unsupported) as refusal:
                assert_clean(refusal.message)
                assert refusal.field == "image"
                outcomes.add("refused")
            else:
                assert picture.rgb.shape == (picture.original[1], picture.original[0], 3)
                outcomes.add("decoded")
    assert "refused" in outcomes


@pytest.mark.parametrize("where", ["_DECODERS", "to_rgb"])
@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RuntimeError("at 0x7f00 in /usr/lib"), BadImage, "The PNG picture is damaged: its picture data is cut off"),
        (AssertionError(), BadImage, "The PNG picture is damaged: its picture data is cut off"),
        (MemoryError(), TooLarge, "There is not enough memory for a picture of 3 x 2 pixels"),
    ],
)
def test_what_the_decoder_throws_does_not_leak(
    where: str, error: Exception, kind: type[Refusal], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(f"foveola.intake.image.{where}", fail if where == "to_rgb" else {"PNG": fail})
    with pytest.raises(kind) as caught:
        decode(encoded(COLOURS, "PNG"))
    assert caught.value.message.startswith(text)
    assert_clean(caught.value.message)
    assert caught.value.__suppress_context__


def test_an_interruption_is_no_broken_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: io.BytesIO) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("foveola.intake.image._DECODERS", {"PNG": interrupt})
    with pytest.raises(KeyboardInterrupt):
        decode(encoded(COLOURS, "PNG"))


def test_threads_do_not_disturb_each_other() -> None:
    jobs: list[tuple[bytes, Any]] = []
    for index in range(24):
        pixels = np.full((64, 48, 3), index * 9, np.uint8)
        format = list(LOSSLESS)[index % len(LOSSLESS)]
        jobs.append((encoded(pixels, format, **LOSSLESS[format]), pixels))
    jobs.append((b"\xff\xd8\xff broken", None))

    def work(job: tuple[bytes, Any]) -> bool:
        try:
            return np.array_equal(decode(job[0]).rgb, job[1])
        except Refusal:
            return job[1] is None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, jobs * 10))


# --- enough pixels ----------------------------------------------------------------------------------------------------


def reduced(picture: Picture) -> Any:
    return np.asarray(Image.fromarray(picture.rgb).resize((224, 168), Image.Resampling.BICUBIC)).astype(int)


def test_a_large_jpeg_is_decoded_no_larger_than_needed() -> None:
    data = encoded(photo(1600, 1200), "JPEG", quality=90)
    whole, drafted = decode(data), decode(data, enough_pixels=4 * 224 * 168)
    assert drafted.original == whole.original == (1600, 1200)
    assert drafted.rgb.shape == (600, 800, 3)
    difference = np.abs(reduced(whole) - reduced(drafted))
    assert difference.mean() < 1
    assert difference.max() <= 16


@pytest.mark.parametrize(("enough", "width"), [(1, 200), (200 * 150, 200), (200 * 150 + 1, 400), (1600 * 1200, 1600)])
def test_never_fewer_pixels_than_asked_for(enough: int, width: int) -> None:
    data = encoded(photo(1600, 1200), "JPEG", exif=b"Exif\0\0" + exif(6))
    picture = decode(data, enough_pixels=enough)
    assert picture.rgb.shape[0] == width
    assert picture.original == (1200, 1600)


def test_other_formats_are_decoded_whole() -> None:
    assert decode(encoded(photo(160, 120), "PNG"), enough_pixels=1).rgb.shape == (120, 160, 3)
