"""How nodes answer to the steps of the prompt: whoever descends a loss pulls less in a direction once it was gone.

A loss that curves upwards has a monotone gradient: for a step s of the prompt and a node's updates u before and after
it, ⟨u(after) - u(before), s⟩ is at most 0, however different the pictures of nodes are. A node that sends the opposite
of what it found answers the other way. Of single rounds that says little (updates are sparse, and say what was left
over before), so it is summed; nobody is doubted before ``ENOUGH`` answers. It costs no byte: two numbers a round.

Whoever descends also comes to rest where the prompt fits its pictures. A node is restless that pulled with (nearly) all
that it may in more than nine of ten rounds, ``ENOUGH`` at least: what it wants is not what the others want, and it will
not be satisfied. Where most nodes pull that hard the bound is tight, and nobody is blamed for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.learn.federate.codec import Floats

ENOUGH = 10
MOSTLY, NEARLY, CALM = 0.9, 0.9, 0.5


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one node: the sum of its answers and their number; ``pull``, how far its last update went along the step that
    was then made, and the round ``of`` that; how many updates ``came``, and how many of them ``pressed`` against the
    bound of the norm."""

    total: float = 0.0
    count: int = 0
    pull: float = 0.0
    of: int = -2
    came: int = 0
    pressed: int = 0

    @property
    def restless(self) -> bool:
        """Whether it always pulled with all that it may."""
        return self.came >= ENOUGH and self.pressed > MOSTLY * self.came

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
        total, count = (one.total + (pull - one.pull), one.count + 1) if fresh else (one.total, one.count)
        now[node] = Answers(total, count, came=one.came, pressed=one.pressed)
    return now


def noted(
    known: Known, nodes: Sequence[int], updates: Floats, moved: Floats, number: int, clip: float = math.inf
) -> Known:
    """The same, once the step ``moved`` of round ``number`` is known; ``clip`` is the bound of the norms."""
    pulls = (updates @ moved).tolist()
    pressed = (np.linalg.norm(updates, axis=1) >= NEARLY * clip).tolist()
    now: Known = {}
    for node, pull, all_of_it in zip(nodes, pulls, pressed, strict=True):
        one = known[node]
        now[node] = Answers(one.total, one.count, pull, number, one.came + 1, one.pressed + all_of_it)
    return now


def doubts(known: Known, nodes: Sequence[int]) -> NDArray[np.bool_]:
    """bool ``[K]``: who is doubted, or restless while half of the nodes are mostly not."""
    held = [known[node] for node in nodes]
    calm = float(np.median([one.pressed / max(one.came, 1) for one in held])) < CALM if held else False
    return np.array([one.doubted or (calm and one.restless) for one in held], bool)
