"""How nodes answer to the steps of the prompt: whoever descends a loss pulls less in a direction once it was gone.

A loss that curves upwards has a monotone gradient: for a step s of the prompt and a node's updates u before and after
it, ⟨u(after) - u(before), s⟩ is at most 0, however different the pictures of nodes are. A node that sends the opposite
of what it found answers the other way. Of single rounds that says little (updates are sparse, and say what was left
over before), so it is summed; nobody is doubted before ``ENOUGH`` answers. It costs no byte: two numbers a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.learn.federate.codec import Floats

ENOUGH = 10


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one node: the sum of its answers and their number; ``pull``, how far its last update went along the step that
    was then made, and the round ``of`` that."""

    total: float = 0.0
    count: int = 0
    pull: float = 0.0
    of: int = -2

    @property
    def doubted(self) -> bool:
        """Whether it answered the wrong way often enough."""
        return self.count >= ENOUGH and self.total > 0


Known = dict[int, Answers]


def heard(known: Mapping[int, Answers], nodes: Sequence[int], updates: Floats, moved: Floats, number: int) -> Known:
    """What is known of ``nodes`` after their ``updates`` float32 ``[K, size]`` of round ``number`` came; ``moved``
    ``[size]`` is the step that the round before made."""
    now: Known = {}
    for node, pull in zip(nodes, (updates @ moved).tolist(), strict=True):
        one = known.get(node, Answers())
        fresh = one.of == number - 1
        now[node] = Answers(one.total + (pull - one.pull), one.count + 1) if fresh else Answers(one.total, one.count)
    return now


def noted(known: Known, nodes: Sequence[int], updates: Floats, moved: Floats, number: int) -> Known:
    """The same, once the step ``moved`` of round ``number`` is known."""
    pulls = (updates @ moved).tolist()
    return {n: Answers(known[n].total, known[n].count, pull, number) for n, pull in zip(nodes, pulls, strict=True)}


def doubts(known: Known, nodes: Sequence[int]) -> NDArray[np.bool_]:
    """bool ``[K]``: who is doubted."""
    return np.array([known[node].doubted for node in nodes], bool)
