from __future__ import annotations

import numpy as np
import pytest
import torch

from foveola.learn.distil.boxes import TokenHeads, fit_heads, overlaps, token_targets
from foveola.learn.distil.measure import average_precision
from foveola.learn.distil.tail import Example


def scene(rng: np.random.Generator) -> tuple[Example, np.ndarray]:
    """A defect on a grid of 4 x 4 tokens; its features say for every token how far each side is."""
    x1, y1 = rng.uniform(0, 0.5, 2)
    x2, y2 = x1 + rng.uniform(0.25, 0.5), y1 + rng.uniform(0.25, 0.5)
    label = int(rng.integers(2))
    boxes = np.array([[label, x1, y1, x2, y2]], np.float32)
    under, wanted = token_targets(boxes, (4, 4), 2)
    features = np.concatenate([under, wanted], -1)
    return Example(np.zeros((8, 8, 3), np.uint8), label, boxes, True), features


def test_tokens_that_touch_a_box_are_told_its_class_and_sides() -> None:
    under, wanted = token_targets(np.array([[1, 0.0, 0.0, 0.5, 0.25]], np.float32), (4, 4), 3)
    assert under[:, 1].reshape(4, 4).tolist() == [[1, 1, 0, 0], [0] * 4, [0] * 4, [0] * 4]
    assert (wanted[0] * 4 + [0.5, 0.5, 0.5, 0.5]).tolist() == pytest.approx([0, 0, 2, 1])


def test_heads_learn_to_find_boxes_in_features_that_tell_them() -> None:
    rng = np.random.default_rng(0)
    scenes = [scene(rng) for _ in range(60)]
    features = torch.from_numpy(np.stack([one for _, one in scenes]))
    torch.manual_seed(0)
    heads = TokenHeads(6, 2, (4, 4))
    losses = fit_heads(heads, features, [one for one, _ in scenes], steps=120)
    assert losses[-1] < 0.3 * losses[0]
    scores = torch.tensor([[3.0, 0.0] if one.label == 0 else [0.0, 3.0] for one, _ in scenes])
    found = heads.found(features, scores)
    truth = [one.boxes for one, _ in scenes if one.boxes is not None]
    assert average_precision(found, truth, 0) > 0.8
    assert all(len(one) <= 8 for one in found)


def test_examples_without_boxes_teach_the_heads_nothing() -> None:
    heads = TokenHeads(6, 2, (4, 4))
    none = Example(np.zeros((8, 8, 3), np.uint8), 0)
    assert heads.loss(torch.zeros(1, 16, 6, requires_grad=True), [none]).item() == 0


def test_overlap_of_a_box_with_itself_and_with_its_half() -> None:
    box = np.array([0.0, 0.0, 1.0, 1.0], np.float32)
    others = np.array([[0, 0, 1, 1], [0, 0, 0.5, 1], [2, 2, 3, 3]], np.float32)
    assert overlaps(box, others).tolist() == pytest.approx([1.0, 0.5, 0.0])
