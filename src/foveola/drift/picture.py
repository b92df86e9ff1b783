"""A picture of what changed: where the model used to look, where it looks now, and the difference."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.drift.observation import SIDE, Floats
from foveola.exchange import Refusal
from foveola.intake.image import decode

CELL_PX, GAP_PX, FRAME_PX = 14, 8, 192
_COLD, _FLAT, _HOT = (np.array(c, np.float64) for c in ((38, 84, 160), (245, 245, 242), (190, 40, 45)))
_INK = np.array((32, 36, 48), np.float64)


def compare(before: Floats, now: Floats) -> bytes:
    """PNG of three maps ``[SIDE, SIDE]`` side by side: before, now (dark: much attention), now - before (red: more)."""
    most = max(float(before.max()), float(now.max()), 1e-12)
    change = now - before
    wide = max(float(np.abs(change).max()), 1e-12)
    parts = [_shaded(before / most, _FLAT, _INK), _shaded(now / most, _FLAT, _INK), _diverging(change / wide)]
    gap = np.full((SIDE * CELL_PX, GAP_PX, 3), 255, np.uint8)
    rows = np.concatenate([parts[0], gap, parts[1], gap, parts[2]], 1)
    held = io.BytesIO()
    Image.fromarray(rows).save(held, "PNG")
    return held.getvalue()


def thumbnail(encoded: bytes) -> bytes:
    """A JPEG of at most ``FRAME_PX`` a side of a picture as it came; nothing for what is no picture."""
    if not encoded:
        return b""
    try:
        rgb = decode(encoded, enough_pixels=FRAME_PX * FRAME_PX).rgb
    except Refusal:
        return b""
    image = Image.fromarray(rgb)
    image.thumbnail((FRAME_PX, FRAME_PX))
    held = io.BytesIO()
    image.save(held, "JPEG", quality=80)
    return held.getvalue()


def _shaded(share: Floats, low: Floats, high: Floats) -> NDArray[np.uint8]:
    colours = low + (high - low) * share[:, :, None]
    return np.kron(colours, np.ones((CELL_PX, CELL_PX, 1))).round().astype(np.uint8)


def _diverging(change: Floats) -> NDArray[np.uint8]:
    """-1 cold, 0 flat, 1 hot."""
    towards = np.where(change[:, :, None] >= 0, _HOT, _COLD)
    colours = _FLAT + (towards - _FLAT) * np.abs(change)[:, :, None]
    return np.kron(colours, np.ones((CELL_PX, CELL_PX, 1))).round().astype(np.uint8)
