from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foveola.learn.distil.tail import Example, class_shares, flipped, paste, restyled
from tests.learn.distil.making import painted


def test_rarer_classes_come_up_more_often() -> None:
    counts = np.array([850.0, 140.0, 3.0])
    assert class_shares(counts, [0, 1, 2], 0.0).tolist() == pytest.approx([1 / 3] * 3)
    shares = class_shares(counts, [0, 1, 2], 0.5)
    assert shares[2] > shares[1] > shares[0]
    assert shares.sum() == pytest.approx(1)


def test_a_restyled_picture_has_the_light_of_the_other_and_keeps_its_drawing() -> None:
    rng = np.random.default_rng(0)
    drawing = rng.integers(100, 250, (16, 16, 3), dtype=np.uint8)
    dark = rng.integers(0, 60, (16, 16, 3), dtype=np.uint8)
    out = restyled(drawing, dark)
    assert out.max() <= 60
    assert abs(float(out.mean()) - float(dark.mean())) < 3
    order = np.argsort(drawing[:, :, 0], axis=None, kind="stable")
    assert (np.diff(out[:, :, 0].ravel()[order].astype(int)) >= 0).all()


def test_mirroring_twice_gives_the_picture_back_and_boxes_go_along() -> None:
    one = painted(1, np.random.default_rng(0))
    turned = flipped(one, True, False)
    assert turned.boxes is not None
    assert turned.boxes[0].tolist() == [1, 0.5, 0.0, 1.0, 1.0]
    assert (flipped(turned, True, False).pixels == one.pixels).all()


def test_what_is_pasted_enters_the_label_by_its_area() -> None:
    rng = np.random.default_rng(3)
    onto, rare = painted(0, rng), painted(2, rng)
    out = paste(onto, rare, rng)
    assert out.mixed is not None
    assert out.mixed[0] == 2
    assert 0.05 < out.mixed[1] < 0.7
    assert not out.located
    assert (out.pixels != onto.pixels).any()
    assert onto.mixed is None


def test_a_picture_without_label_or_of_the_same_class_stays_as_it_is() -> None:
    rng = np.random.default_rng(0)
    rare = painted(2, rng)
    unknown = replace(painted(0, rng), label=-1)
    assert paste(unknown, rare, rng) is unknown
    assert paste(rare, painted(2, rng), rng) is rare


def test_a_picture_without_boxes_gives_a_part_of_itself() -> None:
    rng = np.random.default_rng(0)
    rare = Example(np.full((8, 8, 3), 7, np.uint8), 1)
    assert paste(painted(0, rng), rare, rng).mixed is not None
