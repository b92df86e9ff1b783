"""Bytes to pixels: one encoded picture in, RGB as a person sees it out, or a Refusal that says why not.

Order matters: size in bytes, format by signature, size in pixels from the header, and only then the decoder, which
gets nothing but the bytes that make pixels. Nothing here is shared between calls; decoding runs in C without the GIL.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from foveola.exchange import BadImage, Refusal, TooLarge
from foveola.intake.colour import to_rgb
from foveola.intake.formats import READERS, sniff
from foveola.intake.formats.header import Header, damaged
from foveola.intake.formats.orientation import upright
from foveola.intake.formats.png import has_all_rows

FORMATS = tuple(READERS)
"""Formats that can be decoded; ``Limits.formats`` may allow fewer."""

# Called directly: Image.open would import every plugin there is at the first broken file, and consult a registry
# that anything in the process may have changed.
_DECODERS: dict[str, type[ImageFile]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WEBP": WebPImageFile,
    "BMP": BmpImageFile,
    "GIF": GifImageFile,
    "TIFF": TiffImageFile,
}

_PIXEL_COST = {"WEBP": 2}
"""WebP's decoder holds four copies of a picture where the others hold one or two: its pixels count twice."""

_PILLOW_PIXELS = 89_000_000
"""Beyond this Pillow warns of a decompression bomb on its own account."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is decoded at all. Sizes are read from the header, before any pixel is.

    The default of 64 million pixels admits a 48-megapixel photo and costs at most 500 MB while such a picture is
    decoded, so whoever decodes in several threads multiplies that. ``max_ratio`` is the longer side over the shorter.
    Raises ValueError for limits that cannot be held.
    """

    max_bytes: int = 20 * 2**20
    max_pixels: int = 64_000_000
    max_side: int = 32_767
    max_ratio: int = 200
    formats: tuple[str, ...] = FORMATS

    def __post_init__(self) -> None:
        if not 1 <= self.max_pixels <= _PILLOW_PIXELS:
            raise ValueError(f"max_pixels is {self.max_pixels}; it must lie between 1 and {_PILLOW_PIXELS}")
        if min(self.max_bytes, self.max_side, self.max_ratio) < 1:
            raise ValueError("max_bytes, max_side and max_ratio are at least 1")
        if strange := sorted(set(self.formats) - set(FORMATS)):
            raise ValueError(f"formats holds {', '.join(strange)}; known are {', '.join(FORMATS)}")


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A decoded picture: ``rgb`` uint8 [H, W, 3], ``original`` (width, height) after orientation, ``format``, and its
    ``texture`` where that was asked for.

    ``rgb`` is smaller than ``original`` only where ``decode`` was told how many pixels are enough.
    """

    rgb: NDArray[np.uint8]
    original: tuple[int, int]
    format: str
    texture: tuple[float, ...] = ()


def decode(data: bytes, limits: Limits = Limits(), *, enough_pixels: int | None = None) -> Picture:
    """Decode one picture as a person sees it: oriented, over white, first frame or page.

    With ``enough_pixels`` a JPEG is decoded at an eighth, a quarter or a half of its size where at least that many
    pixels remain; it saves most of the time and memory of a large photo. Ask for twice the pixels that the model
    takes: on 40 photos the reduced pictures then differed from those of a full decoding by 0.2 levels of 255 on
    average, by 7 at most, at a third of the time.

    Raises TooLarge, Unsupported or BadImage, never anything else for whatever bytes.
    """
    header = measure(data, limits)
    rgb = _pixels(header, enough_pixels)
    return Picture(upright(rgb, header.orientation), header.upright_size, header.format)


def measure(data: bytes, limits: Limits = Limits()) -> Header:
    """Read the header of a picture and hold it to ``limits``; no pixel is decoded. Raises as ``decode`` does."""
    if len(data) > limits.max_bytes:
        raise TooLarge(
            f"The picture has {len(data)} bytes; at most {limits.max_bytes} are accepted. Compress or shrink it.",
            field="image",
        )
    header = READERS[sniff(data, limits.formats)](data)
    width, height = header.width, header.height
    if width < 1 or height < 1:
        raise damaged(header.format, f"it has {width} x {height} pixels")
    most = limits.max_pixels // _PIXEL_COST.get(header.format, 1)
    if width * height > most or max(width, height) > limits.max_side:
        raise TooLarge(
            f"The picture has {width} x {height} pixels; at most {most} in all and {limits.max_side} "
            "along a side are accepted. Shrink it.",
            field="image",
        )
    if max(width, height) > limits.max_ratio * min(width, height):
        raise BadImage(
            f"The picture has {width} x {height} pixels; one side may be at most {limits.max_ratio} times the other. "
            "Crop it, or cut it into several pictures.",
            field="image",
        )
    return header


def _pixels(header: Header, enough_pixels: int | None) -> NDArray[np.uint8]:
    """Decode with Pillow, before orientation; whatever it raises becomes a BadImage without the library's words."""
    try:
        image = _DECODERS[header.format](io.BytesIO(header.body))
        if image.size != (header.width, header.height):
            raise damaged(header.format, "its parts disagree about its size")
        if enough_pixels is not None:
            _draft(image, header, enough_pixels)
        image.load()
        if header.format == "PNG" and _may_lack_rows(image) and not has_all_rows(header.body):
            raise damaged("PNG", "it has fewer rows than its header promises")
        return to_rgb(image, header)
    except Refusal:
        raise
    except MemoryError:
        raise TooLarge(
            f"There is not enough memory for a picture of {header.width} x {header.height} pixels. Shrink it.",
            field="image",
        ) from None
    except Exception:  # noqa: BLE001 - plugins raise nearly every built-in exception for broken files
        raise damaged(header.format, "its picture data is cut off or broken") from None


def _may_lack_rows(image: Image.Image) -> bool:
    """Rows that never came are 0 in every channel, the last one first; in an interlaced picture it may be any."""
    width, height = image.size
    last = image.crop((0, height - 1, width, height))
    return bool(image.info.get("interlace")) or last.getbbox(alpha_only=False) is None


def _draft(image: Image.Image, header: Header, enough_pixels: int) -> None:
    """Ask the JPEG decoder for the smallest scale that leaves at least ``enough_pixels``."""
    if header.format != "JPEG":
        return
    for scale in (8, 4, 2):
        size = (header.width // scale, header.height // scale)
        if size[0] * size[1] >= enough_pixels:
            image.draft(None, size)
            return
