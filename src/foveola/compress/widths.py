"""How many channels and heads every layer keeps: a choice under a budget, exact, by dynamic programming.

Every layer is a list of choices (units kept, what is lost, what it costs). The cost is whatever the caller measured:
microseconds out of a latency table, MACs, bytes. The knapsack over the budget is cut into ``steps`` equal parts and
the answer never exceeds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import Invalid

STEPS = 4096


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to keep a layer: ``units`` kept, the importance ``lost``, the ``cost`` that remains (any one unit)."""

    units: int
    lost: float
    cost: float


@dataclass(frozen=True, slots=True)
class Selection:
    """Units kept per layer, with the sums over layers."""

    units: Mapping[str, int]
    lost: float
    cost: float


def choices(importance: Sequence[float], tile: int, cost: Mapping[int, float], least: int = 1) -> list[Choice]:
    """The choices of a layer whose units have this importance: whole tiles, the most important units first.

    ``tile`` units are kept or removed together, at least ``least`` tiles stay. ``cost`` gives the cost of every count
    that may be kept. A last tile that is not full may stay as it is. Raises ``Invalid`` where a cost is missing.
    """
    ordered = np.sort(np.asarray(importance, np.float64))[::-1]
    total = len(ordered)
    counts = sorted({*range(tile * least, total, tile), total})
    gained = np.concatenate([[0.0], np.cumsum(ordered)])
    missing = [count for count in counts if count not in cost]
    if missing:
        raise Invalid(
            f"the latency table has no entry for {missing[0]} units; measure it for every multiple of {tile}."
        )
    return [Choice(count, float(gained[total] - gained[count]), float(cost[count])) for count in counts]


def select(layers: Mapping[str, Sequence[Choice]], budget: float, *, steps: int = STEPS) -> Selection:
    """The choice per layer that loses least in all while the costs add up to at most ``budget``.

    Costs are first rounded down to the grid: what then still keeps the budget is the true optimum. Otherwise they are
    rounded up, which wastes at most one step per layer. Raises ``Invalid`` where even the smallest choices cost more.
    """
    smallest = sum(min(choice.cost for choice in options) for options in layers.values())
    if not layers or budget <= 0 or smallest > budget:
        raise Invalid(
            f"the budget is {budget:g}, but the least that these layers cost is {smallest:g}. Raise the budget.",
            field="budget",
        )
    grain = budget / steps
    for rounding in (math.floor, math.ceil):
        found = _solve(layers, grain, steps, rounding)
        if found is not None and found.cost <= budget * (1 + 1e-9):
            return found
    raise Invalid(f"no choice fits the budget of {budget:g} in {steps} steps; raise the budget or the steps.")


def _solve(
    layers: Mapping[str, Sequence[Choice]], grain: float, steps: int, rounding: Callable[[float], int]
) -> Selection | None:
    """The best choice when costs are whole multiples of ``grain``, at most ``steps`` of them; None where none fits."""
    sizes = {name: [rounding(one.cost / grain) for one in options] for name, options in layers.items()}
    best = np.zeros(steps + 1)
    taken: list[NDArray[np.int32]] = []
    for name, options in layers.items():
        following = np.full(steps + 1, np.inf)
        chosen = np.full(steps + 1, -1, np.int32)
        for index, (option, size) in enumerate(zip(options, sizes[name], strict=True)):
            if size > steps:
                continue
            candidate = np.full(steps + 1, np.inf)
            candidate[size:] = best[: steps + 1 - size] + option.lost
            better = candidate < following
            following[better], chosen[better] = candidate[better], index
        best = following
        taken.append(chosen)
    if not np.isfinite(best[steps]):
        return None
    picked: dict[str, Choice] = {}
    left = steps
    for name, chosen in zip(reversed(list(layers)), reversed(taken), strict=True):
        index = int(chosen[left])
        picked[name] = layers[name][index]
        left -= sizes[name][index]
    return Selection(
        {name: picked[name].units for name in layers},
        sum(one.lost for one in picked.values()),
        sum(one.cost for one in picked.values()),
    )
