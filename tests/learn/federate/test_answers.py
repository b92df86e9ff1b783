"""Nodes that descend answer to a step, and those that send the opposite answer the other way."""

from __future__ import annotations

import numpy as np

from foveola.learn.federate.answers import ENOUGH, Answers, Known, doubts, heard, noted

RNG = np.random.default_rng(0)
BOWLS = RNG.uniform(0.1, 2.0, (6, 24)).astype(np.float32)
"""Curvatures of six nodes' losses; each has its own lowest point."""
LOWEST = RNG.standard_normal((6, 24)).astype(np.float32)


def played(flipped: tuple[int, ...], rounds: int) -> Known:
    known: Known = {}
    prompt, moved = np.zeros(24, np.float32), np.zeros(24, np.float32)
    sign = np.array([-1.0 if n in flipped else 1.0 for n in range(6)], np.float32)[:, None]
    for number in range(rounds):
        updates = sign * 0.1 * BOWLS * (LOWEST - prompt)
        known = heard(known, range(6), updates, moved, number)
        moved = 0.5 * updates.mean(axis=0) + 0.01 * RNG.standard_normal(24).astype(np.float32)
        known = known | noted(known, range(6), updates, moved, number)
        prompt = prompt + moved
    return known


def test_who_flips_is_doubted_and_nobody_else_however_different() -> None:
    assert doubts(played((1, 4), 20), range(6)).tolist() == [False, True, False, False, True, False]


def test_nobody_is_doubted_before_enough_was_heard() -> None:
    assert not doubts(played((1, 4), ENOUGH), range(6)).any()
    assert doubts(played((1, 4), ENOUGH + 1), range(6)).sum() == 2


def test_an_answer_is_to_the_step_of_the_round_before_only() -> None:
    one = np.ones((1, 4), np.float32)
    known = heard({7: Answers(-2.0, 3, 1.5, of=4)}, [7], one, np.full(4, 0.5, np.float32), 5)
    assert known[7] == Answers(-1.5, 4)
    assert heard({7: Answers(-2.0, 3, 1.5, of=4)}, [7], one, one[0], 6)[7] == Answers(-2.0, 3)
    assert noted(known, [7], one, one[0], 5)[7] == Answers(-1.5, 4, 4.0, 5, 1, 0)


def pulled(norms: list[float], rounds: int) -> Known:
    nodes, none = range(len(norms)), np.zeros(4, np.float32)
    updates = np.array([[norm, 0, 0, 0] for norm in norms], np.float32)
    known: Known = {}
    for number in range(rounds):
        known = noted(heard(known, nodes, updates, none, number), nodes, updates, none, number, clip=1.0)
    return known


def test_who_never_comes_to_rest_is_doubted() -> None:
    norms = [1.0, 0.2, 0.95, 0.1, 0.85]
    assert doubts(pulled(norms, ENOUGH), range(5)).tolist() == [True, False, True, False, False]
    assert not doubts(pulled(norms, ENOUGH - 1), range(5)).any()


def test_nobody_is_blamed_for_a_bound_that_most_need() -> None:
    assert not doubts(pulled([1.0, 1.0, 1.0, 0.1], ENOUGH), range(4)).any()
