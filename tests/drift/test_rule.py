"""The described rule, to the letter."""

from __future__ import annotations

import numpy as np

from foveola.drift.rule import DescribedRule


def at(degrees):
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def walk(step, count):
    rule = DescribedRule()
    return rule, [rule.update(at(step * i)) for i in range(count)]


def test_the_same_map_is_fine():
    rule, levels = walk(0, 10)
    assert set(levels) == {"ok"}
    assert rule.mean == 1
    assert rule.holds


def test_nothing_is_known_from_one_map():
    rule = DescribedRule()
    assert rule.update(at(0)) == "ok"
    assert rule.mean is None
    assert rule.holds


def test_five_means_below_080_are_a_warning():
    rule, levels = walk(38, 9)  # cosine 0.788
    assert levels == ["ok"] * 5 + ["warning"] * 4
    assert not rule.holds


def test_three_means_below_075_are_critical():
    _, levels = walk(45, 6)  # cosine 0.707
    assert levels == ["ok"] * 3 + ["critical"] * 3


def test_one_good_map_ends_it():
    rule, _ = walk(45, 6)
    for _ in range(5):
        level = rule.update(at(45 * 5))
    assert level == "ok"
