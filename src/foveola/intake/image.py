"""Bytes to pixels: one encoded picture in, RGB as a person sees it out, or a Refusal that says why not."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from foveola.exchange import BadImage, TooLarge, Unsupported

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""Formats that can be decoded; ``Limits.formats`` may allow fewer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is decoded at all. Sizes are read from the header, before any pixel is.

    64 million pixels hold a 48-megapixel photo and cost at most about 450 MB while they are decoded.
    """

    max_bytes: int = 20 * 2**20
    max_pixels: int = 64_000_000
    max_side: int = 32_767
    formats: tuple[str, ...] = FORMATS


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A decoded picture: ``rgb`` uint8 [H, W, 3], ``original`` (width, height) after orientation, ``format``."""

    rgb: NDArray[np.uint8]
    original: tuple[int, int]
    format: str


def decode(data: bytes, limits: Limits = Limits()) -> Picture:
    """Decode one picture (first version; the guards against hostile files follow)."""
    if len(data) > limits.max_bytes:
        raise TooLarge(f"The picture has {len(data)} bytes; at most {limits.max_bytes} are accepted.", field="image")
    try:
        with Image.open(io.BytesIO(data), formats=limits.formats) as image:
            width, height = image.size
            if width * height > limits.max_pixels or max(width, height) > limits.max_side:
                raise TooLarge(f"The picture is {width} x {height} pixels.", field="image")
            oriented = ImageOps.exif_transpose(image)
            rgba = oriented.convert("RGBA") if oriented.has_transparency_data else oriented.convert("RGB")
            if rgba.mode == "RGBA":
                white = Image.new("RGBA", rgba.size, "white")
                rgba = Image.alpha_composite(white, rgba).convert("RGB")
            return Picture(np.asarray(rgba), rgba.size, image.format or "")
    except UnidentifiedImageError:
        raise Unsupported("The bytes are no picture in a format that is served.", field="image") from None
    except (OSError, ValueError, SyntaxError, TypeError, EOFError, Image.DecompressionBombError):
        raise BadImage("The picture is damaged.", field="image") from None
