"""What is said about how a picture is encoded: compression shows, light and place do not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from foveola.intake.texture import LEAST_PX, texture


def surface(height: int = 200, width: int = 240, seed: int = 0) -> np.ndarray:
    """A grained surface uint8 [H, W, 3]."""
    noise = np.random.default_rng(seed).normal(120, 40, (height, width))
    for axis in (0, 1):
        noise = (noise + np.roll(noise, 1, axis) + np.roll(noise, 2, axis)) / 3
    return np.repeat(noise.clip(0, 255).astype(np.uint8)[:, :, None], 3, 2)


def compressed(rgb: np.ndarray, quality: int) -> np.ndarray:
    held = io.BytesIO()
    Image.fromarray(rgb).save(held, "JPEG", quality=quality)
    return np.asarray(Image.open(held).convert("RGB"))


def test_block_edges_grow_with_compression() -> None:
    sharp = surface()
    found = [texture(sharp, 1000, 1000)[0], *(texture(compressed(sharp, q), 1000, 1000)[0] for q in (50, 25, 10))]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.3


@pytest.mark.parametrize("shift", [(0, 0), (3, 5), (7, 1)])
def test_block_edges_are_found_wherever_the_grid_lies(shift: tuple[int, int]) -> None:
    cut = compressed(surface(), 10)[shift[0] :, shift[1] :]
    assert texture(cut, 1000, 1000)[0] > texture(surface(), 1000, 1000)[0] + 0.3


def test_darker_is_no_other_texture() -> None:
    rgb = surface()
    before, after = texture(rgb, 1000, 1000), texture((rgb * 0.6).astype(np.uint8), 1000, 1000)
    assert np.allclose(before, after, atol=0.05)


def test_blur_takes_detail() -> None:
    blurred = surface()
    for axis in (0, 1):
        blurred = ((blurred.astype(np.uint16) + np.roll(blurred, 1, axis)) // 2).astype(np.uint8)
    assert texture(blurred, 1000, 1000)[1] < texture(surface(), 1000, 1000)[1] - 0.1


def test_bits_are_those_of_the_file() -> None:
    assert texture(surface(), 12_000, 48_000)[2] == 1.0  # two bits per pixel


def test_what_cannot_be_told_is_not() -> None:
    assert texture(surface(LEAST_PX - 1, 100), 1000, 1000) == ()
    assert texture(surface(), 0, 1000) == ()
    edges, detail, _ = texture(np.full((64, 64, 3), 7, np.uint8), 100, 4096)
    assert (edges, round(detail, 6)) == (0.0, 0.0)
