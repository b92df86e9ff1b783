"""Files made to exhaust memory or time. Each is small; each must end in a refusal or a picture, under a limit."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.intake.pictures import SIGNATURE, chunk, encoded, exif, grey_tiff, jpeg_segment, png
from tests.intake.processes import decode_apart

GREY = np.zeros((2, 3), np.uint8)


def png_header(width: int, height: int, kind: int = 2) -> bytes:
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))


def huge_png() -> bytes:
    return png_header(2**31 - 1, 2**31 - 1) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def lying_png() -> bytes:
    return png_header(8000, 7999) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    bomb = zlib.compress(bytes(100_000_000), 9)
    texts = [chunk(b"zTXt", b"Raw profile type exif\0\0" + bomb), chunk(b"iCCP", b"x\0\0" + bomb)]
    return png(1, 1, 8, 0, [b"\7"], *texts * 8)


def inflating_png() -> bytes:
    return png_header(4, 4) + chunk(b"IDAT", zlib.compress(bytes(100_000_000), 9)) + chunk(b"IEND", b"")


def scans() -> bytes:
    frame = jpeg_segment(0xC2, struct.pack(">BHHB", 8, 7900, 7900, 1) + b"\1\x11\0")
    return b"\xff\xd8" + frame + (jpeg_segment(0xDA, b"\1\1\0\0\x3f\0") + b"\0") * 200_000


def fill_bytes() -> bytes:
    return b"\xff\xd8" + b"\xff" * 15_000_000


def lying_jpeg() -> bytes:
    data = bytearray(encoded(np.zeros((16, 16, 3), np.uint8), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 8000, 7999)
    return bytes(data)


def exif_bomb() -> bytes:
    entries = b"".join(struct.pack("<HHII", tag, 7, 65_000, 8) for tag in range(1, 5000))
    block = b"II*\0" + struct.pack("<IH", 8, 4999) + entries
    return SIGNATURE + png(1, 1, 8, 0, [b"\7"], chunk(b"eXIf", block))[8:]


def shared_tags() -> bytes:
    extra = {f"t{tag}": (1, [0] * 5) for tag in range(33_000, 33_900)}
    data = bytearray(grey_tiff(GREY, **extra) + bytes(5_000_000))
    at = int.from_bytes(data[4:8], "little")
    for index in range(int.from_bytes(data[at : at + 2], "little")):
        entry = at + 2 + 12 * index
        if int.from_bytes(data[entry : entry + 2], "little") >= 33_000:
            data[entry + 4 : entry + 12] = struct.pack("<II", 5_000_000, 8)
    return bytes(data)


def huge_tiles() -> bytes:
    return grey_tiff(
        GREY, t273=None, t322=(4, [60_000]), t323=(4, [60_000]), t324=(4, [8]), t325=(4, [6]), t259=(3, [8])
    )


def pages() -> bytes:
    frames = [Image.new("L", (4, 4), level % 256) for level in range(300)]
    return encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])


def comments() -> bytes:
    head = b"GIF89a" + struct.pack("<HH", 1, 1) + b"\0\0\0"
    return head + b"!\xfe" + (b"\xff" + b"x" * 255) * 60_000 + b"\0" + b"," + bytes(4) + b"\1\0\1\0\0\2\1\x4c\0;"


def tiny_comments() -> bytes:
    return b"GIF89a" + bytes(7) + b"!\xfe" + b"\1x" * 9_000_000


def huge_frame() -> bytes:
    return b"GIF89a\1\0\1\0\0\0\0," + struct.pack("<HHHHB", 65_000, 65_000, 65_000, 65_000, 0) + b"\2\1\x4c\0;"


def rle() -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, 2000, 2000, 1, 4, 2, 0, 0, 0, 2, 0)
    return b"BM" + bytes(8) + struct.pack("<I", 62) + info + bytes([0, 0, 0, 0, 9, 9, 9, 0]) + b"\1\0\0\0" * 2000


def palette() -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, 4, 4, 1, 8, 0, 0, 0, 0, 2**32 - 1, 0)
    return b"BM" + bytes(8) + struct.pack("<I", 54) + info + bytes(64)


def canvas() -> bytes:
    body = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (16383).to_bytes(3, "little") * 2
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def small_webp_chunks() -> bytes:
    data = encoded(Image.new("RGB", (4, 4)), "WEBP", lossless=True, exif=exif(1))
    flood = data[12:] + (b"EXIF" + bytes(4)) * 1_000_000
    return b"RIFF" + struct.pack("<I", 4 + len(flood)) + b"WEBP" + flood


REFUSED: list[tuple[Callable[[], bytes], str]] = [
    (huge_png, "TooLarge"), (lying_png, "BadImage"), (scans, "BadImage"), (fill_bytes, "BadImage"),
    (lying_jpeg, "BadImage"), (huge_tiles, "BadImage"), (tiny_comments, "BadImage"), (huge_frame, "TooLarge"),
    (palette, "BadImage"), (canvas, "TooLarge"), (small_webp_chunks, "BadImage"),
]  # fmt: skip
SHOWN: list[Callable[[], bytes]] = [text_bomb, inflating_png, rle, exif_bomb, shared_tags, pages, comments]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("hostile")
    paths = []
    for make in (*(make for make, _ in REFUSED), *SHOWN):
        path = folder / make.__name__
        path.write_bytes(make())
        paths.append(path)
    return {Path(outcome["path"]).name: outcome for outcome in decode_apart(paths)}


@pytest.mark.parametrize(("make", "kind"), REFUSED, ids=[make.__name__ for make, _ in REFUSED])
def test_refused(outcomes: dict[str, dict[str, Any]], make: Callable[[], bytes], kind: str) -> None:
    outcome = outcomes[make.__name__]
    assert outcome.get("refused") == kind, outcome
    assert "not enough memory" not in outcome["message"]


@pytest.mark.parametrize("make", SHOWN, ids=[make.__name__ for make in SHOWN])
def test_shown_without_what_would_inflate(outcomes: dict[str, dict[str, Any]], make: Callable[[], bytes]) -> None:
    assert outcomes[make.__name__].get("sane"), outcomes[make.__name__]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("JPEG", {"quality": 50}), ("PNG", {"compress_level": 1}), ("TIFF", {"compression": "tiff_deflate"}),
        ("GIF", {}), ("WEBP", {"quality": 20, "method": 0}),
    ],
    ids=["JPEG", "PNG", "TIFF", "GIF", "WEBP"],
)  # fmt: skip
def test_the_largest_picture_keeps_to_the_promised_memory(tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    side = 5656 if format == "WEBP" else 8000
    image = Image.new("RGB" if format != "GIF" else "L", (side, side), 77)
    (tmp_path / "large").write_bytes(encoded(image, format, **options))
    outcome = decode_apart([tmp_path / "large"])[0]
    assert outcome.get("sane"), outcome
    assert outcome["shape"] == [side, side, 3]
