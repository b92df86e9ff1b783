"""The capital stays bounded without drift, whatever the distribution, and grows with it."""

from __future__ import annotations

import numpy as np

from foveola.drift.martingale import Jumper, Ranks


def greatest(scores, reference, rng):
    bets, best, ranks = Jumper(), 0.0, Ranks(reference)
    for score in scores:
        bets = bets.step(ranks.add(score, rng.random()))
        best = max(best, bets.log_total)
    return best


def test_it_begins_with_one():
    assert abs(Jumper().log_total) < 1e-12


def test_ville_holds_for_heavy_tails():
    """P(capital ever ≥ 10) ≤ 0.1 while reference and frames are exchangeable."""
    rng = np.random.default_rng(0)
    wins = 0
    for _ in range(150):
        both = rng.standard_cauchy(700)
        wins += greatest(both[400:], np.sort(both[:400]), rng) >= np.log(10)
    assert wins <= 150 * 0.1 + 2 * np.sqrt(150 * 0.09)


def test_a_shift_makes_it_rich():
    rng = np.random.default_rng(0)
    assert greatest(rng.standard_normal(200) + 1.5, np.sort(rng.standard_normal(400)), rng) > np.log(1000)


def test_p_values_are_uniform_with_ties():
    rng = np.random.default_rng(0)
    reference = np.sort(rng.integers(0, 3, 200)).astype(float)
    ranks = Ranks(reference)
    values = np.array([ranks.add(float(rng.integers(0, 3)), rng.random()) for _ in range(4000)])
    assert abs(values.mean() - 0.5) < 0.03
    assert abs(np.quantile(values, 0.1) - 0.1) < 0.03
