"""The rounds of ``foveola.learn.federate`` as a strategy of Flower.

Flower finds the nodes, proves who sent what, and carries messages; what is in them is our wire format, byte by byte,
and what becomes of them is decided in ``rounds``: norms clipped to 1.0, then the weighted mean or centred clipping.

A message to a node holds what it has missed and which of its updates counted last; a reply holds its update.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from foveola.exchange import Unavailable
from foveola.learn.federate.flower import RECORD
from foveola.learn.federate.options import Rejected
from foveola.learn.federate.rounds import Federation

log = logging.getLogger(__name__)

NEVER = -1
POLL_S = 0.5


class PromptStrategy(Strategy):  # type: ignore[misc]  # Flower lives in an environment of its own
    """One federation. ``federation`` keeps the state; a round of Flower asks every node that is there, and whoever has
    not replied when its time is up is late.

    ``min_nodes`` are waited for up to ``patience_s`` seconds before a round begins with fewer.
    """

    def __init__(self, federation: Federation, *, min_nodes: int = 2, patience_s: float = 3600.0) -> None:
        self.federation = federation
        self.rejected: Counter[str] = Counter()
        self.up_bytes = self.down_bytes = 0
        self._min_nodes, self._patience_s = min_nodes, patience_s
        self._known: dict[int, int | None] = {}
        self._counted: dict[int, int] = {}

    def summary(self) -> None:
        """Say what was agreed on."""
        log.info("prompt %s, rule %s", list(self.federation.prompt.shape), self.federation.options.rule)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What every node that is there, and whose update has not come yet, needs to train from the open round."""
        messages = []
        for node in self._nodes(grid):
            if self.federation.has_update_of(node):
                continue
            missed = self.federation.messages_for(self._known.get(node))
            self.down_bytes += sum(map(len, missed))
            told = ConfigRecord({"messages": list(missed), "counted": self._counted.get(node, NEVER)})
            messages.append(Message(RecordDict({RECORD: told}), node, MessageType.TRAIN))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Count the updates and close the round; (None, None) where too few came, and the round stays open."""
        for reply in replies:
            self._take(reply)
        try:
            closed = self.federation.close()
        except Unavailable as too_few:
            log.warning("%s", too_few.message)
            return None, None
        figures = {"updates": closed.updates, "norm": closed.norm, "up": self.up_bytes, "down": self.down_bytes}
        return ArrayRecord([np.ascontiguousarray(self.federation.prompt)]), MetricRecord(figures)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: what a prompt is worth is measured before it is rolled out, not in every round."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing to do."""
        return None

    def _take(self, reply: Message) -> None:
        node = reply.metadata.src_node_id  # Flower's own word for who sent it
        if reply.has_error():
            self.rejected["failed"] += 1
            self._known[node] = None
            return
        try:
            told = reply.content[RECORD]
            data = told["update"]
            if not isinstance(data, bytes):
                raise TypeError
        except (KeyError, TypeError):
            self.rejected["malformed"] += 1
            self._known[node] = None
            return
        self.up_bytes += len(data)
        if not data:  # the node could not go on from what it held
            self.rejected["stale"] += 1
            self._known[node] = None
            return
        number = self.federation.round
        self._known[node] = number
        try:
            self.federation.accept(node, data)
        except Rejected as rejected:
            log.warning("node %d: %s", node, rejected.message)
            self.rejected[rejected.reason] += 1
            if rejected.reason != "replayed":
                self._known[node] = None
        else:
            self._counted[node] = number

    def _nodes(self, grid: Grid) -> list[int]:
        deadline = time.monotonic() + self._patience_s
        while True:
            nodes = sorted(grid.get_node_ids())
            if len(nodes) >= self._min_nodes or time.monotonic() >= deadline:
                return nodes
            time.sleep(POLL_S)
