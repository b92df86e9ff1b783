"""Any of Pillow's pixel modes to RGB as a person sees it, band by band so that large pictures need little room.

Transparency is laid over white. Embedded colour profiles are not applied: values are taken as sRGB, which is also
what models are trained on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from foveola.exchange import Unsupported
from foveola.intake.formats.header import Header, unsupported

_BAND_PIXELS = 1_000_000
_DEEP_GREY = ("I;16", "I;16B", "I;16L", "I;16N")
_PLAIN = ("1", "L", "P", "RGBX", "CMYK", "YCbCr", "HSV")


def to_rgb(image: Image.Image, header: Header) -> NDArray[np.uint8]:
    """The pixels of a loaded ``image`` as uint8 [H, W, 3]. Raises Unsupported for a mode with no agreed look."""
    width, height = image.size
    convert = _converter(image, header)
    rows = max(1, _BAND_PIXELS // width)
    rgb = np.empty((height, width, 3), dtype=np.uint8)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        rgb[top:bottom] = convert(image.crop((0, top, width, bottom)) if rows < height else image)
    if header.frame is not None:
        left, top, right, bottom = header.frame
        rgb[:top] = rgb[bottom:] = rgb[:, :left] = rgb[:, right:] = 255
    return rgb


def _converter(image: Image.Image, header: Header) -> Callable[[Image.Image], NDArray[np.uint8]]:
    mode = image.mode
    if mode in _DEEP_GREY:
        return lambda band: _deep_grey(band, header)
    if header.transparent is not None:
        key = np.array(header.transparent * (3 // len(header.transparent)), dtype=np.uint8)
        return lambda band: _colour_key(band, key)
    if mode == "F":
        return lambda band: _unit_float(band, header)
    if mode == "LAB":
        return _lab_converter()
    if image.has_transparency_data:
        return _over_white
    if mode == "RGB":
        return lambda band: np.asarray(band)
    if mode in _PLAIN:
        return lambda band: np.asarray(band.convert("RGB"))
    raise unsupported(header.format, f"pixels of {_spoken(mode)}")


def _over_white(band: Image.Image) -> NDArray[np.uint8]:
    if band.mode == "La":
        band = band.convert("LA")  # the only way on from premultiplied grey
    if band.mode != "RGBA":
        band = band.convert("RGBA")
    paper = Image.new("RGB", band.size, "white")
    paper.paste(band, mask=band)
    return np.asarray(paper)


def _deep_grey(band: Image.Image, header: Header) -> NDArray[np.uint8]:
    grey = np.asarray(band).astype(np.uint32)
    top = (1 << header.depth) - 1
    levels = np.minimum((grey * 255 + top // 2) // top, 255).astype(np.uint8)
    if header.inverted:
        levels = 255 - levels
    if header.transparent is not None:
        levels[grey == header.transparent[0]] = 255
    return np.repeat(levels[..., None], 3, axis=-1)


def _colour_key(band: Image.Image, key: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rgb = np.array(band.convert("RGB"))
    rgb[(rgb == key).all(axis=-1)] = 255
    return rgb


def _unit_float(band: Image.Image, header: Header) -> NDArray[np.uint8]:
    values = np.asarray(band)
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
        raise Unsupported(
            f"The {header.format} picture holds floating-point values outside 0 to 1, which have no agreed brightness; "
            "save it with 8 or 16 bits per sample.",
            field="image",
        )
    levels = np.rint((1 - values if header.inverted else values) * 255).astype(np.uint8)
    return np.repeat(levels[..., None], 3, axis=-1)


def _lab_converter() -> Callable[[Image.Image], NDArray[np.uint8]]:
    # Both profiles are built in; nothing of the file takes part.
    transform = ImageCms.buildTransform(
        ImageCms.createProfile("LAB"),
        ImageCms.createProfile("sRGB"),
        "LAB",
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
    )

    def convert(band: Image.Image) -> NDArray[np.uint8]:
        converted = ImageCms.applyTransform(band, transform)
        assert converted is not None  # only with inPlace
        return np.asarray(converted)

    return convert


def _spoken(mode: str) -> str:
    return {"I": "32-bit or signed integers"}.get(mode, f"the kind {mode}")
