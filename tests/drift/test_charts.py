"""Charts: step by step equals all at once, and bounds keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.drift.charts import Cusum, MeanChart, Peaks, blocks, memory_of


def test_cusum_steps_equal_the_whole():
    scores = np.random.default_rng(0).standard_normal((3, 200))
    for run, peak in zip(scores, Cusum().peaks(scores), strict=True):
        sum_ = best = 0.0
        for score in run:
            sum_ = Cusum().step(sum_, score)
            best = max(best, sum_)
        assert peak == pytest.approx(best)


def test_one_wild_score_does_not_decide():
    assert Cusum().step(0.0, 1e9) == pytest.approx(6 - 0.35)


def test_mean_chart_steps_equal_the_whole():
    rng = np.random.default_rng(1)
    residuals = rng.standard_normal((50, 4))
    order = rng.integers(0, 50, (2, 120))
    chart = MeanChart()
    for run, peak in zip(order, chart.peaks(residuals, order), strict=True):
        mean, best = np.zeros(4), 0.0
        for i in run:
            mean = chart.step(mean, residuals[i])
            best = max(best, chart.distance(mean))
        assert peak == pytest.approx(best)


def test_blocks_keep_neighbours_together():
    order = blocks(np.random.default_rng(0), 100, 7, 4, 50)
    assert order.shape == (4, 50)
    assert order.min() >= 0
    assert order.max() < 100
    steps = np.diff(order, axis=1)
    assert (np.delete(steps, np.arange(6, 49, 7), axis=1) == 1).all()


def test_the_threshold_is_exceeded_as_often_as_it_says():
    """Maxima of independent frames: the bound for one false alarm in 5 000 frames, counted over fresh frames."""
    rng = np.random.default_rng(3)
    peaks = Cusum().peaks(rng.standard_normal((200, 2000)))
    bound = Peaks.fit(peaks, 2000).threshold(1 / 5000)
    alarms, frames = 0, 0
    for _ in range(300):
        fresh = Cusum().peaks(rng.standard_normal((1, 2000)))
        alarms += int(fresh[0] > bound)
        frames += 2000
    assert 40 < alarms < 200  # 120 are expected


def test_memory_of_a_slow_series_is_long():
    rng = np.random.default_rng(0)
    fast = rng.standard_normal(2000)
    slow = np.zeros(2000)
    for i in range(1, 2000):
        slow[i] = 0.8 * slow[i - 1] + rng.standard_normal()
    assert memory_of(fast) == 1
    assert 5 <= memory_of(slow) <= 12
    assert memory_of(np.ones(100)) == 1
