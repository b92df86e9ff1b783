"""The examiner marks rightly and asks about what training never sees."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.tiny import exam, real
from foveola.tiny.exam import Question, Score


def _question(task: str, expected: str) -> Question:
    return Question("k", task, "l", "en", "train", b"", "q", expected)


@pytest.mark.parametrize(
    ("task", "expected", "answer", "right"),
    [
        ("defect", "pit", " pit ", True),
        ("defect", "pit", "pits", False),
        ("box", "(100,100),(300,300)", "(100,100),(300,290)", True),
        ("box", "(100,100),(300,300)", "(100,100),(200,190)", False),
        ("box", "(100,100),(300,300)", "no defect", False),
        ("code", "A7K39", "A7K3", False),
    ],
)
def test_marking(task, expected, answer, right):
    assert exam.is_right(_question(task, expected), answer) is right


def test_iou_of_known_boxes():
    assert exam.box_iou((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert exam.box_iou((0, 0, 1, 1), (2, 2, 3, 3)) == 0
    assert exam.box_iou((0, 0, 0, 0), (0, 0, 0, 0)) == 0


def test_the_interval_is_wilsons():
    low, high = exam.wilson(95, 100)
    assert low == pytest.approx(0.8882, abs=1e-4)
    assert high == pytest.approx(0.9785, abs=1e-4)
    assert exam.wilson(0, 0) == (0.0, 1.0)


def test_the_tally_groups():
    a, b = _question("defect", "pit"), _question("code", "X")
    scores = exam.tally([(a, True), (a, False), (b, True)], lambda q: q.task)
    assert scores == {"defect": Score(1, 2), "code": Score(1, 1)}
    assert scores["defect"].share == 0.5


def test_near_duplicates_stay_on_one_side(shared):
    records = real.load_records(shared / "data")
    sides: dict[str, set[bool]] = {}
    for r in records:
        if r.source == "magnetic_tile":
            sides.setdefault(str(int(r.path.rsplit("num_", 1)[1].split(".")[0]) // 100), set()).add(r.held_out)
    assert all(len(s) == 1 for s in sides.values())
    held = [r for r in records if r.held_out]
    assert 0.1 < len(held) / len(records) < 0.2


def test_held_out_cutouts_are_not_trained_on(shared):
    records = real.load_records(shared / "data")
    trained = {c.tobytes() for _, c in real.cutouts(records)}
    examined = {c.tobytes() for _, c in exam.held_out_cutouts(records)}
    assert trained
    assert examined
    assert len(trained & examined) <= 1  # two files of the set are the same picture


def test_a_view_keeps_what_it_is_named_for(shared):
    records = [r for r in real.load_records(shared / "data") if r.source == "magnetic_tile" and r.boxes]
    for i, r in enumerate(records):
        crop, seen = real.view(r, np.random.default_rng(i))
        assert seen.names == (r.name,)
        assert crop.size > 0.6 * r.grey.size or seen.defects  # most of the tile, or a part with the defect in it
        for d in seen.defects:
            assert 0 <= d.box[0] < d.box[2] <= 1
            assert 0 <= d.box[1] < d.box[3] <= 1
