from __future__ import annotations

import numpy as np
import pytest

from foveola.learn.federate.codec import Feedback, compress

VALUES = np.random.default_rng(1).standard_normal(1000).astype(np.float32)


def test_the_largest_entries_are_kept() -> None:
    sparse = compress(VALUES, 0.1)
    assert sparse.positions.tolist() == sorted(np.argsort(-np.abs(VALUES))[:100].tolist())
    assert np.abs(sparse.dense() - VALUES)[sparse.positions].max() <= sparse.scale / 2 * 1.001


def test_everything_is_said_in_the_end() -> None:
    feedback, said = Feedback(1000), np.zeros(1000, np.float32)
    said += feedback.encode(VALUES, 0.1).dense()
    for _ in range(30):
        said += feedback.encode(np.zeros(1000, np.float32), 0.1).dense()
    assert np.abs(said - VALUES).max() < 0.02
    assert np.allclose(said + feedback.residual, VALUES, atol=1e-5)


def test_a_clipped_rest_stays_for_later() -> None:
    feedback = Feedback(1000)
    sparse = feedback.encode(VALUES, 0.5, clip=1.0)
    assert sparse.norm == pytest.approx(1.0, abs=1e-4)
    assert sparse.norm <= 1.0
    assert np.allclose(sparse.dense() + feedback.residual, VALUES, atol=1e-6)


def test_an_update_that_did_not_count_is_taken_back() -> None:
    feedback = Feedback(1000)
    feedback.take_back(feedback.encode(VALUES, 0.1).dense())
    assert np.allclose(feedback.residual, VALUES, atol=1e-6)


def test_nothing_is_an_empty_update() -> None:
    sparse = compress(np.zeros(50, np.float32), 0.1)
    assert (len(sparse.levels), sparse.scale, sparse.norm) == (0, 0.0, 0.0)
    assert not sparse.dense().any()


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite numbers only"):
        compress(np.array([1, np.nan], np.float32), 1.0)
