"""Labels of the auxiliary heads lie where the picture has them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.tiny import batches
from foveola.tiny.labels import font_files
from foveola.tiny.model import merge_order, to_patches
from foveola.tiny.scenes import Defect, Scene

EMPTY = np.zeros((0, 0, 3), np.uint8)


def test_patches_come_in_merge_blocks():
    pixels = np.zeros((28, 56, 3), np.uint8)
    pixels[14:28, 14:28] = 255  # row 1, column 1: the fourth patch of the first block
    patches = to_patches(pixels)
    assert patches.shape == (8, 588)
    assert [float(p.max()) for p in patches] == [-1, -1, -1, 1, -1, -1, -1, -1]
    assert merge_order(np.arange(8).reshape(2, 4)).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_a_defect_lies_under_its_patches():
    scene = Scene(EMPTY, "machined part", (Defect("pit", (0.0, 0.0, 0.24, 0.24)),), True, ("pit",))
    under, place, before = batches.under_patches(scene, (4, 4))
    wanted = 1 + batches.CLASSES.index("pit")
    assert under.tolist() == [wanted] + [0] * 15
    assert not place.any()
    assert not before.any()


def test_what_nobody_knows_is_not_taught():
    scene = Scene(EMPTY, "road surface", (), False, ("crack",))
    assert (batches.under_patches(scene, (4, 4))[0] == batches.IGNORE).all()


def test_characters_and_their_places_lie_under_the_text():
    scene = Scene(EMPTY, "printed label", code="A7", characters=(("A", 0, (0, 0, 0.5, 1)), ("7", 1, (0.5, 0, 1, 1))))
    under, place, before = batches.under_patches(scene, (2, 4))
    a, seven = (1 + len(batches.CLASSES) + batches.CHARACTERS.index(c) for c in "A7")
    assert under.tolist() == [a] * 4 + [seven] * 4
    assert place.tolist() == [1] * 4 + [2] * 4
    assert batches.token_halves(place).tolist() == [[1, 1], [2, 2]]
    assert before.tolist() == [1] * 4 + [2 + batches.CHARACTERS.index("A")] * 4


def test_halves_prefer_what_is_printed():
    assert batches.token_halves(np.array([0, 5, 7, 0])).tolist() == [[7, 5]]


def test_tokens_know_the_box_they_touch():
    scene = Scene(EMPTY, "machined part", (Defect("pit", (0.6, 0.6, 0.9, 0.9)),), True, ("pit",))
    boxes, touched = batches._token_boxes(scene, (4, 4))
    assert touched.tolist() == [False, False, False, True]
    assert boxes[3].tolist() == pytest.approx([(1.2 - 1.5) / 4, (1.2 - 1.5) / 4, (1.8 - 1.5) / 4, (1.8 - 1.5) / 4])


def test_a_page_teaches_characters_and_no_places_nor_class():
    scene = Scene(EMPTY, "printed label", characters=(("A", -1, (0, 0, 0.5, 1)),))
    under, place, before = batches.under_patches(scene, (2, 4))
    a = 1 + len(batches.CLASSES) + batches.CHARACTERS.index("A")
    assert under.tolist() == [a] * 4 + [0] * 4
    assert place.tolist() == before.tolist() == [batches.IGNORE] * 4 + [0] * 4


def test_a_shrunk_label_has_the_asked_size_and_its_characters_where_they_are_printed():
    try:
        font_files()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    shrunk = [_drawn(seed, 1.6) for seed in range(12)]
    assert {s.pixels.shape for s in shrunk} == {(56, 168, 3)}
    plain = [_drawn(seed, 1.0) for seed in range(12)]
    heights = [(box[3] - box[1]) * 56 for s in (*shrunk, *plain) for _, _, box in s.characters[:1]]
    assert min(heights[:12]) < min(heights[12:])
    for scene in shrunk:
        grey = scene.pixels.astype(float).mean(-1)
        boxes = np.zeros(grey.shape, bool)
        for _, _, (x1, y1, x2, y2) in scene.characters:
            boxes[max(0, int(y1 * 56)) : int(y2 * 56) + 1, max(0, int(x1 * 168)) : int(x2 * 168) + 1] = True
        paper = grey[~boxes]
        assert np.abs(grey[boxes] - np.median(paper)).max() > 2 * np.abs(paper - np.median(paper)).mean()


def _drawn(seed: int, shrink: float) -> Scene:
    return batches._label(np.random.default_rng(seed), 56, 168, batches.Ease(shrink=shrink))
