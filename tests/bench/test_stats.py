from __future__ import annotations

import numpy as np
import pytest

from foveola.bench.stats import median, paired_ratio, percentile


def test_percentiles_are_linear_between_neighbours() -> None:
    values = [10.0, 20.0, 30.0, 40.0, 50.0]
    assert percentile(values, 0) == 10
    assert percentile(values, 50) == median(values) == 30
    assert percentile(values, 95) == pytest.approx(48)
    assert percentile(values[::-1], 99) == pytest.approx(49.6)
    assert percentile([7.0], 99) == 7


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no percentile of no values"):
        percentile([], 50)


def test_a_constant_ratio_has_no_width() -> None:
    shorter = list(np.random.default_rng(0).uniform(1, 9, 50))
    ratio = paired_ratio([6 * value for value in shorter], shorter)
    assert ratio.value == pytest.approx(6)
    assert ratio.low == pytest.approx(6)
    assert ratio.high == pytest.approx(6)


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    drawing = np.random.default_rng(1)
    held = 0
    for _ in range(60):
        shorter = drawing.lognormal(0, 0.3, 40)
        ratio = paired_ratio(list(shorter * 3 * drawing.lognormal(0, 0.2, 40)), list(shorter))
        assert ratio.low < ratio.value < ratio.high
        held += ratio.low < 3 < ratio.high
    assert held >= 52  # 57 are expected


def test_the_interval_narrows_with_more_pairs() -> None:
    drawing = np.random.default_rng(1)
    widths = []
    for count in (20, 500):
        shorter = drawing.lognormal(0, 0.3, count)
        ratio = paired_ratio(list(shorter * drawing.lognormal(0, 0.2, count)), list(shorter))
        widths.append(ratio.high - ratio.low)
    assert widths[1] < widths[0] / 2


def test_noise_that_strikes_both_of_a_pair_does_not_widen_the_interval() -> None:
    drawing = np.random.default_rng(2)
    noise = drawing.lognormal(0, 1, 100)
    paired = paired_ratio(list(2 * noise), list(noise))
    unpaired = paired_ratio(list(2 * noise), list(drawing.permutation(noise)))
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 10


def test_the_same_series_give_the_same_interval() -> None:
    longer, shorter = [3.0, 4.0, 5.0, 9.0], [1.0, 2.0, 2.0, 3.0]
    assert paired_ratio(longer, shorter) == paired_ratio(longer, shorter)


@pytest.mark.parametrize(("longer", "shorter"), [([1.0], [1.0, 2.0]), ([], [])])
def test_series_that_are_no_pairs_are_refused(longer: list[float], shorter: list[float]) -> None:
    with pytest.raises(ValueError, match="paired series"):
        paired_ratio(longer, shorter)
