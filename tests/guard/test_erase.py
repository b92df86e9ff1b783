"""What is erased cannot be got back: shown by construction, and by attacks that succeed against the usual mosaic."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from foveola.guard.erase import Box, Pixels, erase, mosaic, widened

BOX: Box = (40, 30, 140, 60)
CANDIDATES = 40


def plates() -> list[Pixels]:
    """A street with each of many plates at the same place: an attacker who knows everything but which one it was."""
    rng = np.random.default_rng(3)
    street = rng.integers(60, 140, (90, 180, 3), dtype=np.uint8)
    font = ImageFont.load_default(24)
    pictures = []
    for _ in range(CANDIDATES):
        image = Image.fromarray(street)
        draw = ImageDraw.Draw(image)
        draw.rectangle((BOX[0], BOX[1], BOX[2] - 1, BOX[3] - 1), fill="white")
        draw.text((BOX[0] + 4, BOX[1]), "".join(rng.choice(list(string.ascii_uppercase), 5)), fill="black", font=font)
        pictures.append(np.asarray(image))
    return pictures


def hits(published: list[Pixels], guesses: list[Pixels]) -> int:
    """How often the guess that is nearest to a published picture is the right one."""
    distances = np.array([[np.abs(one.astype(int) - other).sum() for other in guesses] for one in published])
    return int((distances.argmin(1) == np.arange(len(published))).sum())


def test_trying_candidates_undoes_a_mosaic_and_not_an_erasure() -> None:
    pictures = plates()
    rng = np.random.default_rng(0)
    published = [mosaic(picture, BOX) for picture in pictures]
    assert hits(published, [mosaic(picture, BOX) for picture in pictures]) == CANDIDATES
    erased = [erase(picture, [BOX], rng) for picture in pictures]
    for guesses in (
        pictures,
        [mosaic(picture, BOX) for picture in pictures],
        [erase(picture, [BOX], rng) for picture in pictures],
    ):
        assert hits(erased, guesses) <= 5  # 1 of 40 is chance; more than 5 happens once in 1 700 times


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 255))
def test_what_was_inside_does_not_enter_what_comes_out(seed: int, level: int) -> None:
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
    boxes: list[Box] = [(5, 5, 30, 25), (20, 10, 50, 40), (0, 0, 4, 48)]
    other = picture.copy()
    for left, top, right, bottom in boxes:
        other[top:bottom, left:right] = level
    one, two = (erase(given_, boxes, np.random.default_rng(1)) for given_ in (picture, other))
    assert np.array_equal(one, two)


def test_the_rest_of_the_picture_stays_and_the_original_too() -> None:
    [picture] = plates()[:1]
    before = picture.copy()
    out = erase(picture, [BOX], np.random.default_rng(0))
    assert np.array_equal(picture, before)
    out[BOX[1] : BOX[3], BOX[0] : BOX[2]] = picture[BOX[1] : BOX[3], BOX[0] : BOX[2]]
    assert np.array_equal(out, picture)


def test_a_whole_picture_can_be_erased() -> None:
    picture = np.full((20, 30, 3), 200, np.uint8)
    out = erase(picture, [(0, 0, 30, 20)], np.random.default_rng(0))
    assert abs(out.mean() - 127) < 30


@pytest.mark.parametrize(
    ("box", "wide"),
    [((10, 10, 30, 20), (6, 8, 34, 22)), ((0, 0, 100, 50), (0, 0, 100, 50)), ((5, 5, 6, 6), (3, 3, 8, 8))],
)
def test_a_region_is_widened_within_the_picture(box: Box, wide: Box) -> None:
    assert widened(box, 0.2, (100, 50)) == wide
