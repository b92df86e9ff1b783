from __future__ import annotations

from foveola.learn.distil.gate import GateOptions, Sight, Verdict, judge, pass_gate
from foveola.learn.distil.measure import Marks

CLASSES = ("patches", "scratches")


def sight(right: int, *, error: float = 0.05, new: int = 90) -> Sight:
    return Sight(Marks((right, 5), (100, 100), error), Marks((new, 0), (100, 0), error))


def test_a_head_class_that_loses_more_than_a_point_stands_against_it() -> None:
    assert judge(sight(90), sight(89), [0], CLASSES) == ()
    (reason,) = judge(sight(90), sight(88), [0], CLASSES)
    assert reason == "patches loses 2.0 points on 100 old pictures; at most 1 are allowed."
    (reason,) = judge(sight(90, new=90), sight(90, new=80), [0], CLASSES)
    assert "10.0 points on 100 new pictures" in reason


def test_tail_classes_may_change() -> None:
    worse = Sight(Marks((90, 0), (100, 100), 0.05), Marks((90, 0), (100, 0), 0.05))
    assert judge(sight(90), worse, [0], CLASSES) == ()


def test_worse_calibration_stands_against_it() -> None:
    reasons = judge(sight(90), sight(90, error=0.2), [0], CLASSES, GateOptions(calibration=0.1))
    assert len(reasons) == 2
    assert reasons[0].startswith("The calibration error on old pictures grows from 0.050 to 0.200")


def test_nothing_passes_without_a_picture_to_look_at() -> None:
    empty = Sight(Marks((0, 0), (0, 0), 0.0), Marks((0, 0), (0, 0), 0.0))
    (reason,) = judge(empty, empty, [0], CLASSES)
    assert "give it some" in reason


def test_the_farthest_step_that_passes_is_taken() -> None:
    def judge_at(one: Sight) -> tuple[str, ...]:
        return judge(sight(90), one, [0], CLASSES)

    verdict = pass_gate(lambda share: sight(round(90 - 4 * share)), judge_at)
    assert verdict == Verdict(0.25, ())
    assert verdict.passed
    refused = pass_gate(lambda share: sight(50), judge_at)
    assert refused.share == 0
    assert not refused.passed
    assert "40.0 points" in refused.to_json()["reasons"][0]
