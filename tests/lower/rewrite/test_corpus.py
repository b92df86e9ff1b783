"""Graphs with known answers: what has to fuse fuses, near-misses stay, and each computes what it did."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("onnx_ir")

from foveola.lower.rewrite.chips import CHIPS
from foveola.lower.rewrite.corpus import KINDS, Case, corpus
from foveola.lower.rewrite.graph import prepare
from foveola.lower.rewrite.proof import TOLERANCE
from foveola.lower.rewrite.rewrite import rewrite

COUNT = 504  # 8 kinds on 3 chips, 21 variations of each


def check(case: Case) -> None:
    report = rewrite(prepare(case.model), CHIPS[case.chip])
    assert Counter(report.applied) == case.expected, f"{case.name} on {case.chip}"
    assert not report.refused
    assert report.worst <= TOLERANCE
    assert report.whole <= TOLERANCE
    assert report.after.kernels <= report.before.kernels


@pytest.mark.parametrize("case", list(corpus(3 * len(KINDS))), ids=lambda case: f"{case.chip} {case.name}")
def test_one_of_each_kind_on_each_chip(case: Case) -> None:
    check(case)


@pytest.mark.slow
def test_the_whole_corpus_has_no_wrong_fusion() -> None:
    cases = list(corpus(COUNT))
    assert len(cases) == COUNT
    assert sum(not case.expected for case in cases) > 100  # near-misses
    for case in cases:
        check(case)
