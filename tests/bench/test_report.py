from __future__ import annotations

import pytest

from foveola.bench.measure import Series
from foveola.bench.report import agreement, latencies, row_of, versus
from foveola.bench.sample import Block
from tests.bench.making import sample, series


def test_a_row_has_every_figure_of_the_table() -> None:
    row = row_of(series("foveola", [0.1, 0.2, 0.3, 0.4]), "here", 3 * 2**20)
    assert (row.platform, row.contender, row.batch, row.requests) == ("here", "foveola", 1, 4)
    assert row.images_per_s == 4
    assert row.latency_ms_p50 == 250
    assert row.latency_ms_p95 == 385
    assert row.latency_ms_p99 == 397
    assert row.ttft_ms_p50 == 125
    assert row.tokens_per_s == pytest.approx(66.67)  # 4 tokens after the first in a quarter of each latency
    assert row.peak_memory_mib == 3
    assert row.stages_ms["vision"] == 125
    assert row.stages_ms["other"] == 62.5


def test_images_per_second_count_the_time_in_which_several_were_answered_at_once() -> None:
    several = Series("foveola", 4, [Block((sample(0.4),) * 8, 1.0)])
    assert row_of(several, "here", 1).images_per_s == 8


def test_answers_of_one_token_have_no_rate() -> None:
    short = Series("foveola", 1, [Block((sample(0.4, tokens=1),), 0.4)])
    assert row_of(short, "here", 1).tokens_per_s == 0


def test_the_others_are_compared_with_ours_at_the_same_concurrency() -> None:
    every = [
        series("foveola", [0.1, 0.2]),
        series("transformers", [0.6, 1.2]),
        series("foveola", [0.1, 0.2], batch=4),
        series("transformers", [0.2, 0.4], batch=4),
    ]
    found = [(one.rival, one.batch, round(one.ratio.value, 3)) for one in versus(every, "foveola")]
    assert found == [("transformers", 1, 6.0), ("transformers", 4, 2.0)]


def test_equal_answers_are_counted_and_a_few_others_shown() -> None:
    ours = series("foveola", [0.1] * 4, texts=["pass", "fail ", "a", "a"])
    theirs = series("transformers", [0.1] * 4, texts=["pass", "fail", "b", "b"])
    found = agreement([ours, theirs, series("foveola", [0.1], batch=4)], "foveola", "transformers")
    assert (found.same, found.count, found.share) == (2, 4, 0.5)
    assert found.differing == (("a", "b"),)


def test_latencies_are_kept_for_the_plots() -> None:
    assert latencies([series("foveola", [0.0101, 0.2])]) == [
        {"contender": "foveola", "batch": 1, "latency_ms": [10.1, 200.0]}
    ]
