"""A federation in one process: real bytes between a real server's side and many nodes, without a network.

Nodes come late, leave and come back; some are malicious. Every byte that would cross the wire is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from foveola.exchange import Invalid
from foveola.learn.federate.attacks import ATTACKS, poison, wrong
from foveola.learn.federate.codec import Floats
from foveola.learn.federate.node import Node
from foveola.learn.federate.options import FederationOptions, Rejected
from foveola.learn.federate.problem import Labels, Problem, accuracy, shards
from foveola.learn.federate.rounds import Federation


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """``steps`` local rounds make an update. ``away`` is the chance that a node misses a round, ``straggle`` that its
    update comes after the round was closed; ``malicious`` the share of nodes that run ``attack``."""

    nodes: int = 100
    rounds: int = 40
    steps: int = 10
    concentration: float = 0.3
    away: float = 0.1
    straggle: float = 0.05
    malicious: float = 0.0
    attack: str = "flip"
    seed: int = 0
    problem: Problem = field(default_factory=Problem)

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.rounds < 1 or self.steps < 1:
            raise Invalid("nodes, rounds and steps are at least 1.")
        if not all(0 <= share < 1 for share in (self.away, self.straggle, self.malicious)):
            raise Invalid("away, straggle and malicious are shares from 0 to below 1.")
        if self.attack not in ATTACKS:
            raise Invalid(f"attack is {self.attack!r}; expected one of {', '.join(ATTACKS)}.", field="attack")
        if not self.concentration > 0:
            raise Invalid("concentration is above 0; 0.3 gives every node few classes.", field="concentration")


@dataclass(slots=True)
class Traffic:
    """Bytes on the wire, headers included, and how many messages; ``largest`` is the largest update of a node."""

    up_bytes: int = 0
    down_bytes: int = 0
    up: int = 0
    down: int = 0
    largest: int = 0


class Simulation:
    """Built from features ``[N, width]`` and labels ``[N]``; ``run`` rounds, then look at ``prompt``."""

    def __init__(
        self,
        features: Floats,
        labels: Labels,
        options: SimulationOptions,
        federation: FederationOptions | None = None,
        folder: Path | None = None,
    ) -> None:
        self.options = options
        self.traffic = Traffic()
        self.rejected: Counter[str] = Counter()
        self._rng = np.random.default_rng(options.seed)
        agreed = federation or FederationOptions.over(options.rounds, width=features.shape[1])
        self.federation = Federation.create(agreed, folder, range(1, options.nodes + 1))
        parts = shards(labels, options.nodes, options.concentration, self._rng)
        count = round(options.nodes * options.malicious)
        self._malicious = {int(n) + 1 for n in self._rng.choice(options.nodes, count, replace=False)}
        self._parts = parts
        self._nodes = []
        for number, part in enumerate(parts, 1):
            told = wrong(labels[part], options.attack) if number in self._malicious else labels[part]
            self._nodes.append(Node(number, options.problem.on(features[part], told, options.steps), agreed))
        self._late: list[tuple[Node, bytes]] = []

    @property
    def prompt(self) -> Floats:
        """What the nodes hold after the last round."""
        return self.federation.prompt

    @property
    def honest(self) -> list[Labels]:
        """The indices of the pictures of each honest node."""
        return [part for number, part in enumerate(self._parts, 1) if number not in self._malicious]

    def run(self, rounds: Iterable[int]) -> None:
        """One round for every item of ``rounds`` (such as a progress bar over a range)."""
        for _ in rounds:
            self._round()

    def _round(self) -> None:
        present = [node for node in self._nodes if self._rng.random() >= self.options.away]
        stragglers: list[tuple[Node, bytes]] = []
        for node in present:
            messages = self.federation.messages_for(node.known)
            self.traffic.down += len(messages)
            self.traffic.down_bytes += sum(map(len, messages))
            node.receive(messages)
            data = node.train()
            if node.number in self._malicious:
                data = poison(data, self.options.attack, self.federation.options.keep, self._rng)
            if self._rng.random() < self.options.straggle:
                stragglers.append((node, data))
            else:
                self._send(node, data)
        self.federation.close()
        for node, data in stragglers:  # the round is over when these come
            self._send(node, data)

    def _send(self, node: Node, data: bytes) -> None:
        self.traffic.up += 1
        self.traffic.up_bytes += len(data)
        self.traffic.largest = max(self.traffic.largest, len(data))
        try:
            self.federation.accept(node.number, data)
        except Rejected as rejected:
            self.rejected[rejected.reason] += 1
            node.not_counted()

    def report(self, features: Floats, labels: Labels) -> dict[str, float | int]:
        """Accuracy on pictures that nobody trained on, bytes per message, and the share that was saved against dense
        float32 without headers for the same messages, both ways."""
        traffic = self.traffic
        dense = 4 * self.federation.options.rows * self.federation.options.width
        both = traffic.up_bytes + traffic.down_bytes
        return {
            "rounds": self.federation.round,
            "accuracy": accuracy(self.prompt, features, labels),
            "update_bytes": round(traffic.up_bytes / max(traffic.up, 1)),
            "largest_update_bytes": traffic.largest,
            "down_bytes": round(traffic.down_bytes / max(traffic.down, 1)),
            "dense_bytes": dense,
            "saved_up": 1 - traffic.up_bytes / max(dense * traffic.up, 1),
            "saved_both_ways": 1 - both / max(dense * 2 * traffic.up, 1),
            "late": self.rejected["late"],
        }
