"""Maps of all sizes on one grid, and what their similarity means."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.drift.observation import SIDE, cosine, heat_map, observe, pearson
from foveola.exchange import Evidence


def evidence(weights, **more):
    weights = np.asarray(weights, float)
    return Evidence(weights.shape, tuple(weights.ravel().tolist()), float(weights.sum()), **more)


@pytest.mark.parametrize("grid", [(1, 1), (2, 5), (8, 8), (7, 3), (16, 24)])
def test_weight_is_kept_where_it_is(grid):
    weights = np.random.default_rng(0).random(grid)
    found = heat_map(evidence(weights))
    assert found.shape == (SIDE, SIDE)
    assert found.sum() == pytest.approx(1)
    # the centre of mass moves by less than a cell
    for axis in (0, 1):
        before = (weights.sum(1 - axis) / weights.sum() * (np.arange(grid[axis]) + 0.5) / grid[axis]).sum()
        after = (found.sum(1 - axis) * (np.arange(SIDE) + 0.5) / SIDE).sum()
        assert after == pytest.approx(before, abs=0.5 / SIDE)


def test_a_picture_without_attention_has_a_flat_map():
    assert np.allclose(heat_map(evidence(np.zeros((3, 4)))), 1 / SIDE**2)


def test_unrelated_maps_have_a_high_cosine_and_no_correlation():
    """Why the described rule cannot decide: cosine of independent maps is about 1 / (1 + CV²)."""
    rng = np.random.default_rng(0)
    pairs = [
        (1 + 0.3 * rng.standard_normal((SIDE, SIDE)), 1 + 0.3 * rng.standard_normal((SIDE, SIDE))) for _ in range(200)
    ]
    assert np.mean([cosine(a, b) for a, b in pairs]) == pytest.approx(1 / (1 + 0.3**2), abs=0.01)
    assert abs(np.mean([pearson(a, b) for a, b in pairs])) < 0.03


def test_flat_maps_correlate_with_nothing():
    assert pearson(np.ones((SIDE, SIDE)), np.eye(SIDE)) == 0
    assert cosine(np.zeros((SIDE, SIDE)), np.eye(SIDE)) == 0


def test_features_come_along():
    seen = observe("left", "scratch", evidence(np.ones((2, 2)), summary=(0.5, -1.0)))
    assert (seen.camera, seen.label) == ("left", "scratch")
    assert seen.features.tolist() == [0.5, -1.0]
