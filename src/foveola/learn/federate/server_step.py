"""From what the nodes agree on to a step of the prompt: as it is, or scaled coordinate by coordinate.

Uneven nodes agree on small changes of many entries and on large ones of few; a plain mean then needs thousands of
rounds. ``adam`` is FedAdam (Reddi et al.: "Adaptive federated optimization", ICLR 2021, algorithm 2), whose step
shrinks linearly to ``LAST`` of ``rate`` over ``horizon`` rounds, so that it comes to rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foveola.learn.federate.codec import Floats

SERVERS = ("adam", "plain")
FIRST, SECOND, FLOOR, LAST = 0.9, 0.99, 1e-3, 0.05


class Moments(NamedTuple):
    """``first`` and ``second`` float32 ``[size]``: running means of the changes, and of their squares."""

    first: Floats
    second: Floats


def step(
    server: str, moments: Moments, change: Floats, number: int, *, rate: float, horizon: int
) -> tuple[Floats, Moments]:
    """The step float32 ``[size]`` of round ``number`` that ``change`` leads to, and the moments after it."""
    if server == "plain":
        return change, moments
    first = np.float32(FIRST) * moments.first + np.float32(1 - FIRST) * change
    second = np.float32(SECOND) * moments.second + np.float32(1 - SECOND) * change**2
    left = max(LAST, 1 - (1 - LAST) * number / horizon)
    moved = (np.float32(rate * left) * first / (np.sqrt(second) + np.float32(FLOOR))).astype(np.float32)
    return moved, Moments(first, second)
