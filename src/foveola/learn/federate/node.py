"""A node's side: its pictures' features stay here; a prompt comes in, a small change of it goes out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foveola.exchange import Unavailable
from foveola.learn.federate.codec import Feedback, Floats, Sparse
from foveola.learn.federate.options import FederationOptions, Rejected
from foveola.learn.federate.problem import Labels, Problem
from foveola.learn.federate.wire import Snapshot, Update, digest, pack, unpack


class Node:
    """``features`` float32 ``[N, width]`` and ``labels`` int64 ``[N]`` never leave it. ``number`` is at least 1."""

    def __init__(
        self, number: int, features: Floats, labels: Labels, options: FederationOptions, problem: Problem, steps: int
    ) -> None:
        self.number = number
        self.known: int | None = None
        self._features, self._labels = features, labels
        self._options, self._problem, self._steps = options, problem, steps
        self._prompt = np.zeros((options.rows, options.width), np.float32)
        self._feedback = Feedback(options.rows * options.width)
        self._sent: Sparse | None = None

    def receive(self, messages: Sequence[bytes]) -> None:
        """Apply what the server sent. Raises Rejected for a message that does not continue what this node holds;
        the node then holds nothing and asks for a snapshot (``known`` is None)."""
        for data in messages:
            try:
                self._apply(unpack(data))
            except Rejected:
                self.known = None
                raise

    def train(self) -> bytes:
        """Local rounds from the prompt that is held, and the update to send. Raises Unavailable before one came."""
        if self.known is None:
            raise Unavailable(f"Node {self.number} holds no prompt yet; fetch a snapshot first.")
        trained = self._problem.train(self._prompt, self._features, self._labels, self._steps)
        self._sent = self._feedback.encode(trained - self._prompt, self._options.keep, self._options.clip)
        rows, width = self._prompt.shape
        return pack(Update(rows, width, self.known, self.number, digest(self._prompt), len(self._labels), self._sent))

    def not_counted(self) -> None:
        """The last update came too late or was lost: its content goes out with the next one."""
        if self._sent is not None:
            self._feedback.take_back(self._sent)
            self._sent = None

    def _apply(self, message: Update | Snapshot) -> None:
        if isinstance(message, Snapshot):
            if message.values.shape != self._prompt.shape:
                raise Rejected("shape", f"A prompt of the shape {list(message.values.shape)} came; expected another.")
            self._prompt, self.known = message.values.copy(), message.round
            return
        if message.node != 0 or (message.rows, message.width) != self._prompt.shape:
            raise Rejected("malformed", "A message came that is no broadcast of this federation's server.")
        if message.round != self.known or message.base != digest(self._prompt):
            raise Rejected("stale", f"A broadcast of round {message.round} does not continue what is held. Catch up.")
        self._prompt = self._prompt + message.sparse.dense().reshape(self._prompt.shape)
        self.known = message.round + 1
