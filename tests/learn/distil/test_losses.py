from __future__ import annotations

import math

import pytest
import torch

from foveola.learn.distil.losses import (
    adjusted_cross_entropy,
    anchor,
    class_weights,
    distillation,
    expected_calibration_error,
    prior,
    trust_in_teacher,
    unevenness,
)

ONE_HOT = torch.eye(3)


def test_without_an_adjustment_it_is_plain_cross_entropy() -> None:
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    found = adjusted_cross_entropy(logits, ONE_HOT, torch.tensor([0.8, 0.15, 0.05]), 0.0)
    assert found.item() == pytest.approx(torch.nn.functional.cross_entropy(logits, torch.arange(3)).item())


def test_the_minimum_under_a_prior_has_logits_without_it() -> None:
    """One input with labels as uneven as the prior: the best logits say that all classes are as likely."""
    shares = torch.tensor([0.9, 0.08, 0.02])
    logits = torch.zeros(1, 3, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for _ in range(300):
        loss = adjusted_cross_entropy(logits, shares[None], shares, 1.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert torch.allclose(logits.softmax(-1), torch.full((1, 3), 1 / 3), atol=0.01)


def test_an_empty_batch_costs_nothing() -> None:
    none = torch.zeros(0, 3, requires_grad=True)
    assert adjusted_cross_entropy(none, torch.zeros(0, 3), ONE_HOT[0], 1.0).item() == 0
    assert anchor(none, torch.zeros(0, 3), 1.0).item() == 0


def test_weights_of_rare_classes_are_higher_and_their_mean_over_pictures_is_one() -> None:
    shares = torch.tensor([0.9, 0.1])
    weights = class_weights(shares, 1.0)
    assert weights[1] / weights[0] == pytest.approx(9)
    assert float((weights * shares).sum()) == pytest.approx(1)


def test_distillation_is_zero_for_the_teacher_itself_and_without_trust() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    assert distillation(logits, logits, 2.0, torch.ones(4)).item() == pytest.approx(0, abs=1e-6)
    assert distillation(logits, -logits, 2.0, torch.zeros(4)).item() == 0
    assert distillation(logits, -logits, 2.0, torch.ones(4)).item() > 0.1


def test_balanced_distillation_counts_a_rare_class_as_much_as_a_frequent_one() -> None:
    teacher = torch.tensor([[4.0, 0.0]] * 9 + [[0.0, 4.0]])
    student = teacher.clone()
    student[9] = torch.tensor([4.0, 0.0])  # wrong about the rare one only
    trust = torch.ones(10)
    plain = distillation(teacher, student, 1.0, trust, balanced=False).item()
    assert distillation(teacher, student, 1.0, trust).item() == pytest.approx(5 * plain)


def test_the_teacher_is_believed_where_it_grew_up_and_where_it_is_right() -> None:
    teacher = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [9.0, 0.0], [0.1, 0.0]])
    labels = torch.tensor([1, 1, 0, -1, -1])
    old = torch.tensor([True, False, False, False, False])
    assert trust_in_teacher(teacher, labels, old).tolist() == [1, 0, 1, 1, 0]


def test_unevenness_is_zero_for_equal_shares_and_one_for_a_single_class() -> None:
    assert unevenness(torch.full((4,), 0.25)) == pytest.approx(0, abs=1e-6)
    assert unevenness(torch.tensor([1.0, 0.0, 0.0])) == pytest.approx(1)
    assert 0 < unevenness(prior(torch.tensor([85.0, 14.0, 1.0]))) < 1


def test_the_anchor_is_relative_to_the_usual_size() -> None:
    assert anchor(torch.ones(2, 4), torch.zeros(2, 4), 8.0).item() == pytest.approx(0.5)


def test_calibration_error_of_sure_answers_is_their_share_of_errors() -> None:
    sure = torch.tensor([[1.0, 0.0]] * 4)
    assert expected_calibration_error(sure, torch.tensor([0, 0, 0, 1])) == pytest.approx(0.25)
    assert expected_calibration_error(torch.full((2, 2), 0.5), torch.tensor([0, 1])) == pytest.approx(0, abs=1e-6)
    assert math.isfinite(expected_calibration_error(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)))
