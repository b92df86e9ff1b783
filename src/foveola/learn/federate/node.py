"""A node's side: its pictures stay here; a prompt comes in, a small change of it goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foveola.exchange import Unavailable
from foveola.learn.federate.codec import Feedback, Floats
from foveola.learn.federate.options import FederationOptions, Rejected
from foveola.learn.federate.wire import Snapshot, Update, digest, pack, unpack

NEVER = -1
"""No round: nothing is held, or nothing has counted yet."""


class Training(Protocol):
    """What a node does with its own pictures between two updates."""

    @property
    def examples(self) -> int:
        """How many pictures it trains on: its claim to weight."""

    def __call__(self, prompt: Floats) -> Floats:
        """The prompt float32 ``[rows, width]`` after the local rounds of one update."""


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What a node has to remember to go on later: no picture and no feature is in it.

    ``prompt``, ``residual`` (not said yet) and ``sent`` (not known to have counted, of round ``sent_in``) are float32
    ``[size]``; ``known`` is the round at whose start ``prompt`` is the server's, or ``NEVER``.
    """

    known: int
    prompt: Floats
    residual: Floats
    sent_in: int
    sent: Floats


class Node:
    """``training`` holds what never leaves. ``number`` is at least 1."""

    def __init__(self, number: int, training: Training, options: FederationOptions) -> None:
        self.number = number
        self.known: int | None = None
        self._training, self._options = training, options
        self._prompt = np.zeros((options.rows, options.width), np.float32)
        self._feedback = Feedback(options.rows * options.width)
        self._sent: Floats | None = None
        self._sent_in = NEVER

    def receive(self, messages: Sequence[bytes]) -> None:
        """Apply what the server sent; what was applied before is passed over. Raises Rejected for a message that does
        not continue what this node holds; the node then holds nothing and asks for a snapshot (``known`` is None)."""
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
        trained = self._training(self._prompt)
        sparse = self._feedback.encode(trained - self._prompt, self._options.keep, self._options.clip)
        self._sent, self._sent_in = sparse.dense(), self.known
        rows, width = self._prompt.shape
        told = (rows, width, self.known, self.number, digest(self._prompt), self._training.examples)
        return pack(Update(*told, sparse))

    def settle(self, counted: int) -> None:
        """The server says in which round an update of this node counted last: one that was sent in another goes out
        again with the next."""
        if self._sent_in != counted:
            self.not_counted()
        self._sent = None

    def not_counted(self) -> None:
        """The last update came too late or was lost: its content goes out with the next one."""
        if self._sent is not None:
            self._feedback.take_back(self._sent)
            self._sent = None

    def memory(self) -> Memory:
        """Where this node is."""
        size = self._prompt.size
        sent = np.zeros(size, np.float32) if self._sent is None else self._sent
        known = NEVER if self.known is None else self.known
        return Memory(known, self._prompt.reshape(size), self._feedback.residual, self._sent_in, sent)

    def remember(self, memory: Memory) -> None:
        """Go on where ``memory`` was taken. Raises ValueError where it is of another federation, or damaged."""
        arrays = (memory.prompt, memory.residual, memory.sent)
        if any(one.shape != (self._prompt.size,) or not np.isfinite(one).all() for one in arrays):
            raise ValueError("the memory is of another federation, or damaged")
        self.known = None if memory.known < 0 else memory.known
        self._prompt = memory.prompt.astype(np.float32).reshape(self._prompt.shape)
        self._feedback = Feedback(self._prompt.size, memory.residual)
        self._sent = memory.sent.astype(np.float32) if memory.sent.any() else None
        self._sent_in = memory.sent_in

    def _apply(self, message: Update | Snapshot) -> None:
        if isinstance(message, Snapshot):
            if message.values.shape != self._prompt.shape:
                raise Rejected("shape", f"A prompt of the shape {list(message.values.shape)} came; expected another.")
            self._prompt, self.known = message.values.copy(), message.round
            return
        if message.node != 0 or (message.rows, message.width) != self._prompt.shape:
            raise Rejected("malformed", "A message came that is no broadcast of this federation's server.")
        if self.known is not None and message.round < self.known:
            return  # sent again, since the server did not hear that it came
        if message.round != self.known or message.base != digest(self._prompt):
            raise Rejected("stale", f"A broadcast of round {message.round} does not continue what is held. Catch up.")
        self._prompt = self._prompt + message.sparse.dense().reshape(self._prompt.shape)
        self.known = message.round + 1
