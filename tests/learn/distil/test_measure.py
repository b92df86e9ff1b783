from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foveola.learn.distil.measure import alignment_error, average_precision, marks

TRUTH = np.array([[0, 0.1, 0.1, 0.5, 0.5]], np.float32)


def claim(label: int, sure: float, *box: float) -> list[float]:
    return [label, sure, *box]


def boxes(*claims: list[float]) -> np.ndarray:
    return np.array(claims, np.float32).reshape(-1, 6)


def test_marks_by_class() -> None:
    scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [2.0, 0.0, 0.0]])
    found = marks(scores, [0, 1, 1])
    assert (found.right, found.count) == ((1, 1, 0), (1, 2, 0))
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.mean_of([0, 1]) == pytest.approx(0.75)
    assert math.isnan(found.of(2))
    assert found.mean_of([1, 2]) == pytest.approx(0.5)


def test_a_right_box_above_the_wrong_ones_has_full_precision() -> None:
    found = [boxes(claim(0, 0.9, 0.1, 0.1, 0.5, 0.5), claim(0, 0.3, 0.6, 0.6, 0.9, 0.9))]
    assert average_precision(found, [TRUTH], 0) == pytest.approx(1)


def test_a_box_that_overlaps_too_little_finds_nothing() -> None:
    assert average_precision([boxes(claim(0, 0.9, 0.1, 0.1, 0.3, 0.3))], [TRUTH], 0) == 0


def test_a_defect_is_found_once() -> None:
    twice = boxes(claim(0, 0.9, 0.1, 0.1, 0.5, 0.5), claim(0, 0.8, 0.1, 0.1, 0.5, 0.5))
    assert average_precision([twice, boxes()], [TRUTH, TRUTH], 0) == pytest.approx(0.5)


def test_surer_claims_elsewhere_lower_the_precision() -> None:
    wrong = boxes(claim(0, 0.95, 0.0, 0.0, 1.0, 1.0))
    right = boxes(claim(0, 0.9, 0.1, 0.1, 0.5, 0.5))
    assert average_precision([wrong, right], [np.zeros((0, 5), np.float32), TRUTH], 0) == pytest.approx(0.5)


def test_a_class_that_does_not_occur_has_no_precision() -> None:
    assert math.isnan(average_precision([boxes()], [TRUTH], 1))


def test_alignment_is_relative_to_how_far_classes_lie_apart() -> None:
    line = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
    assert alignment_error(line, [0, 1], line, [0, 1]) == 0
    moved = line + torch.tensor([0.0, 2.0])
    assert alignment_error(line, [0, 1], moved, [0, 1]) == pytest.approx(0.5)
    assert math.isnan(alignment_error(line, [0, 1], moved, [0, 0]))
