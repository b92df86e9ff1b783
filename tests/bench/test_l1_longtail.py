"""The protocol of long-tail repair, without a model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the workshop is not installed")
pytest.importorskip("transformers", reason="the workshop is not installed")

from foveola.learn.distil.tail import Example
from tests.bench.scripts import load

PROTOCOL = load("l1_longtail")


def pool(each: int) -> Any:
    def picture(line: int, label: int, number: int) -> Example:
        return Example(np.array([[[line, label, number]]], np.uint8), label)

    labels = [(label, number) for label in range(len(PROTOCOL.CLASSES)) for number in range(each)]
    return PROTOCOL.Pool(*([picture(line, *one) for one in labels] for line in (0, 1)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_stream_is_as_uneven_as_described(seed: int) -> None:
    head, middle, tail = PROTOCOL.groups(seed)
    assert sorted([*head, *middle, *tail]) == list(range(len(PROTOCOL.CLASSES)))
    taught = PROTOCOL.lessons(pool(60), seed, PROTOCOL.STREAM)
    shown = [int(one.pixels[0, 0, 1]) for one in [*taught.stream, *taught.guard_new]]
    counts = np.bincount(shown, minlength=len(PROTOCOL.CLASSES))
    assert counts[head].sum() / counts.sum() == pytest.approx(0.85, abs=0.01)
    assert counts[tail].tolist() == [1, 1, 1]
    assert all(one.label >= 0 for one in taught.stream if int(one.pixels[0, 0, 1]) in tail)
    assert np.mean([one.label < 0 for one in taught.stream]) == pytest.approx(0.2, abs=0.05)


def test_every_class_is_a_tail_of_some_seed_and_the_crack_of_all() -> None:
    tails = [set(PROTOCOL.groups(seed)[2]) for seed in range(3)]
    assert set.union(*tails) == set(range(len(PROTOCOL.CLASSES))) - {PROTOCOL.UNEVEN}
    assert set.intersection(*tails) == {PROTOCOL.CRACK}


def test_what_is_remembered_guarded_and_streamed_are_different_pictures() -> None:
    taught = PROTOCOL.lessons(pool(60), 0, PROTOCOL.STREAM)

    def numbers(examples: Any) -> set[tuple[int, int]]:
        return {(int(one.pixels[0, 0, 1]), int(one.pixels[0, 0, 2])) for one in examples}

    old, guard, stream = numbers(taught.old), numbers(taught.guard_old), numbers(taught.stream)
    assert not old & guard
    assert not (old | guard) & stream
    assert all(one.old and one.pixels[0, 0, 0] == 0 for one in [*taught.old, *taught.guard_old])
    assert all(one.pixels[0, 0, 0] == 1 for one in [*taught.stream, *taught.guard_new])


def judged(tail: float, *, aligned: float = 0.4, head: float = 0.9) -> dict[str, Any]:
    """As ``judged`` of the script would find it on seed 0."""
    shares = [tail if label in PROTOCOL.groups(0)[2] else head for label in range(len(PROTOCOL.CLASSES))]
    line = {"accuracy": shares, "ap_named": shares, "ap50_heads": shares, "calibration_error": 0.1}
    return {"first": line, "second": line, "alignment_error": aligned, "ap50_said": shares}


def test_bars_hold_ours_against_fine_tuning_and_against_what_served() -> None:
    base = judged(0.3)
    found = {"before": base, "balanced": judged(0.6, aligned=0.1, head=0.895), "fine_tuning": judged(0.1)}
    summary = {name: PROTOCOL.summed([one], base) for name, one in found.items()}
    bars = PROTOCOL.bars(summary)
    assert [bar.value for bar in bars[:4]] == pytest.approx([6, 6, 6, 6])
    assert bars[4].value == pytest.approx(0.5)
    assert bars[6].value == pytest.approx(0.25)
    assert all(bar.ok for bar in bars)


def test_a_ratio_to_nothing_is_no_success_where_both_found_nothing() -> None:
    base = judged(0.0)
    nothing = {name: PROTOCOL.summed([base], base) for name in ("before", "balanced", "fine_tuning")}
    bars = PROTOCOL.bars(nothing)
    assert math.isnan(bars[0].value)
    assert not bars[0].ok
    assert PROTOCOL.bars({"before": nothing["before"], "kd": nothing["before"]}) == []
