from __future__ import annotations

import numpy as np
import pytest

from foveola.learn.federate.aggregate import (
    BOUND,
    aggregate,
    agreement,
    bounded_mean,
    capped_weights,
    centred_clip,
    clip_norms,
    median,
    trimmed_mean,
    weighted_mean,
)

RNG = np.random.default_rng(2)
TRUE = np.full(64, 0.05, np.float32)
HONEST = (TRUE + 0.01 * RNG.standard_normal((80, 64))).astype(np.float32)
EVEN = np.full(100, 0.01)
ZEROS = np.zeros(64, np.float32)


def attacked(evil: float) -> np.ndarray:
    return np.concatenate([HONEST, np.full((20, 64), evil, np.float32)])


def test_norms_are_clipped_and_small_ones_left() -> None:
    held = clip_norms(np.stack([TRUE, 100 * TRUE]), 1.0)
    assert np.allclose(held[0], TRUE)
    assert np.linalg.norm(held[1]) == pytest.approx(1.0, abs=1e-5)


def test_the_mean_is_weighted() -> None:
    assert weighted_mean(np.stack([TRUE, 3 * TRUE]), np.array([0.75, 0.25])) == pytest.approx(1.5 * TRUE)


def test_no_node_can_claim_more_than_twice_the_median() -> None:
    weights = capped_weights(np.array([10, 10, 10, 4_000_000_000, 0]), 2.0)
    assert weights.sum() == pytest.approx(1)
    assert weights[3] == pytest.approx(2 * weights[0])
    assert weights[4] == pytest.approx(weights[0] / 10)


def test_centred_clipping_holds_where_the_mean_collapses() -> None:
    updates = attacked(-50.0)
    assert weighted_mean(updates, EVEN).max() < -5
    found = centred_clip(updates, EVEN, np.zeros(64, np.float32))
    assert found == pytest.approx(TRUE, abs=0.03)


@pytest.mark.parametrize("evil", [-50.0, 50.0, -0.05])
def test_a_minority_moves_the_bounded_mean_no_more_than_its_number(evil: float) -> None:
    updates = attacked(evil)
    found = bounded_mean(updates, EVEN, BOUND)
    norm = float(np.median(np.linalg.norm(updates, axis=1)))
    assert np.linalg.norm(found - 0.8 * TRUE) <= 0.2 * BOUND * norm + 0.01
    assert found.min() > 0.005  # it still points where the honest ones do


def test_the_bounded_mean_keeps_what_only_one_node_knows() -> None:
    updates = HONEST.copy()
    updates[0] = 0
    updates[0, 0] = -float(np.linalg.norm(TRUE))
    weights = np.full(80, 1 / 80)
    without = bounded_mean(np.delete(updates, 0, axis=0), np.full(79, 1 / 79), BOUND)
    assert bounded_mean(updates, weights, BOUND)[0] - without[0] == pytest.approx(
        (updates[0, 0] - without[0]) / 80, rel=0.05
    )


def test_flipped_updates_do_not_count_and_nodes_at_rest_do() -> None:
    flipped = np.concatenate([HONEST, -20 * HONEST[:20]])
    found, scores = aggregate(
        "bounded", flipped, np.full(100, 7), np.zeros(100), centre=ZEROS, clip=1.0, weight_cap=2.0
    )
    assert (scores[:80] > 0).all()
    assert (scores[80:] < 0).all()
    assert found == pytest.approx(HONEST.mean(axis=0), abs=1e-3)
    different = RNG.standard_normal((80, 64)).astype(np.float32) / 20
    at_rest = different - different.mean(axis=0)  # near the end: everybody pulls against the rest
    _, later = aggregate("bounded", at_rest, np.full(80, 7), scores[:80], centre=ZEROS, clip=1.0, weight_cap=2.0)
    assert (later > 0).all()


def test_all_rules_agree_where_all_nodes_do() -> None:
    updates = np.repeat(TRUE[None], 5, axis=0)
    for rule in ("mean", "bounded", "centred", "median", "trimmed"):
        found, _ = aggregate(rule, updates, np.full(5, 7), np.zeros(5), centre=ZEROS, clip=1.0, weight_cap=2.0)
        assert found == pytest.approx(TRUE, abs=1e-6), rule


def test_median_and_trimmed_mean_ignore_extremes() -> None:
    updates = attacked(50.0)
    assert median(updates) == pytest.approx(TRUE, abs=0.02)
    assert trimmed_mean(updates) == pytest.approx(TRUE, abs=0.02)
    assert trimmed_mean(updates[:2]) == pytest.approx(updates[:2].mean(axis=0))


def test_the_median_of_sparse_updates_says_nothing() -> None:
    sparse = HONEST * (RNG.random(HONEST.shape) < 0.1)
    assert not median(sparse.astype(np.float32)).any()


def test_a_node_that_pulls_against_the_others_no_longer_counts() -> None:
    updates = np.concatenate([HONEST, -HONEST[:20]])
    examples = np.full(100, 7)
    found, scores = aggregate("centred", updates, examples, np.zeros(100), centre=ZEROS, clip=1.0, weight_cap=2.0)
    assert (scores[:80] > 0).all()
    assert (scores[80:] < 0).all()
    assert found == pytest.approx(TRUE, abs=0.01)
    _, kept = aggregate("centred", updates, examples, np.full(100, 9.0), centre=ZEROS, clip=1.0, weight_cap=2.0)
    assert (kept > 0).all()  # one strange round does not undo many good ones


def test_the_agreement_leaves_a_nodes_own_part_out() -> None:
    updates = np.eye(3, 64, dtype=np.float32)
    weights = np.full(3, 1 / 3)
    assert agreement(updates, weights, weighted_mean(updates, weights)) == pytest.approx(np.zeros(3), abs=1e-6)
