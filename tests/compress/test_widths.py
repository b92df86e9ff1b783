from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.compress.widths import Choice, choices, select
from foveola.exchange import Invalid


def test_choices_are_whole_tiles_and_lose_the_least_important() -> None:
    found = choices([5.0, 1.0, 4.0, 2.0, 3.0], 2, {2: 10.0, 4: 20.0, 5: 30.0})
    assert found == [Choice(2, 6.0, 10.0), Choice(4, 1.0, 20.0), Choice(5, 0.0, 30.0)]


def test_a_count_that_was_not_measured_is_told() -> None:
    with pytest.raises(Invalid, match="no entry for 4 units; measure it for every multiple of 2"):
        choices([1.0] * 4, 2, {2: 1.0})


def test_the_less_important_layer_gives_more() -> None:
    layers = {
        "much": choices([10.0] * 4, 1, {n: float(n) for n in range(1, 5)}),
        "little": choices([1.0] * 4, 1, {n: float(n) for n in range(1, 5)}),
    }
    found = select(layers, 5.0)
    assert found.units == {"much": 4, "little": 1}
    assert (found.lost, found.cost) == (3.0, 5.0)


def test_a_budget_below_the_least_is_told_with_the_least() -> None:
    with pytest.raises(Invalid, match="the budget is 1, but the least that these layers cost is 4. Raise the budget"):
        select({"a": [Choice(1, 0.0, 4.0)]}, 1.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    st.integers(1, 48),
)
def test_no_choice_within_the_budget_loses_less(table: list[list[tuple[int, int]]], budget: int) -> None:
    """Against every combination; costs are whole and the budget divides the grid, so that nothing is rounded."""
    layers = {
        str(i): [Choice(j, float(lost), float(cost)) for j, (lost, cost) in enumerate(options)]
        for i, options in enumerate(table)
    }
    best = min(
        (
            sum(one.lost for one in combination)
            for combination in itertools.product(*layers.values())
            if sum(one.cost for one in combination) <= budget
        ),
        default=np.inf,
    )
    if np.isinf(best):
        with pytest.raises(Invalid):
            select(layers, float(budget), steps=budget)
        return
    found = select(layers, float(budget), steps=budget)
    assert found.lost == best
    assert found.cost <= budget
