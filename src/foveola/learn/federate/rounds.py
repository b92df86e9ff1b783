"""The server's side of a federation: collect updates, refuse what does not count, close the round, tell everyone.

What goes down is as sparse as what comes up: the server broadcasts the change of the prompt through the same codec
with its own error feedback, so that every node holds, bit for bit, the prompt that the server holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foveola.exchange import Unavailable
from foveola.learn.federate import state as disk
from foveola.learn.federate.aggregate import aggregate, clip_norms
from foveola.learn.federate.answers import doubts, heard, noted
from foveola.learn.federate.codec import Feedback, Floats
from foveola.learn.federate.options import FederationOptions, Rejected
from foveola.learn.federate.privacy import noised
from foveola.learn.federate.server_step import Moments, step
from foveola.learn.federate.wire import OVERHEAD_BYTES, Snapshot, Update, digest, pack, unpack

_MAX_STRANGE = 64


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed round: how many updates counted, how many were refused and why, L2 norm of what was broadcast."""

    round: int
    updates: int
    rejected: dict[str, int]
    norm: float


class Federation:
    """One prompt and the open round. Not thread-safe: one caller at a time.

    ``members`` are the nodes that may take part; None where the transport has checked that already.
    """

    def __init__(self, state: disk.State, folder: Path | None = None, members: Collection[int] | None = None) -> None:
        self._state = state
        self._folder = folder
        self._members = None if members is None else frozenset(members)
        self._updates: dict[int, Update] = {}
        self._rejected: Counter[str] = Counter()
        self._rng = np.random.default_rng()  # of the system's entropy: noise that can be repeated hides nothing
        self._base = digest(state.prompt)

    @classmethod
    def create(
        cls, options: FederationOptions, folder: Path | None = None, members: Collection[int] | None = None
    ) -> Federation:
        """Start from a prompt of zeros. Without a ``folder`` nothing is remembered. Raises FileExistsError where the
        folder already holds a federation."""
        zeros = np.zeros(options.rows * options.width, np.float32)
        state = disk.State(options, 0, **dict.fromkeys(disk.ARRAYS, zeros), broadcasts={}, scores={}, answers={})
        if folder is not None:
            if (folder / "state").exists():
                raise FileExistsError(f"{folder.name} already holds a federation; resume it, or name another folder")
            disk.save(folder, state)
        return cls(state, folder, members)

    @classmethod
    def resume(cls, folder: Path, members: Collection[int] | None = None) -> Federation:
        """Go on where the folder was left, with the updates of the open round. Raises Damaged."""
        state = disk.load(folder)
        federation = cls(state, folder, members)
        for node, data in disk.kept_updates(folder, state.round):
            try:
                federation._updates[node] = federation._check(node, data)
            except Rejected as rejected:
                federation._rejected[rejected.reason] += 1
        return federation

    @property
    def options(self) -> FederationOptions:
        """What was agreed on."""
        return self._state.options

    @property
    def round(self) -> int:
        """The number of the open round, from 0."""
        return self._state.round

    @property
    def prompt(self) -> Floats:
        """float32 ``[rows, width]``: what every node that is up to date holds."""
        return self._state.prompt.reshape(self.options.rows, self.options.width).copy()

    @property
    def received(self) -> int:
        """Updates of the open round that count so far."""
        return len(self._updates)

    def has_update_of(self, node: int) -> bool:
        """Whether an update of ``node`` counts in the open round already."""
        return node in self._updates

    def messages_for(self, known: int | None) -> list[bytes]:
        """What a node needs that is at the start of round ``known`` (None: new): the broadcasts that it missed, or a
        snapshot where those are gone or longer."""
        if known == self.round:
            return []
        missed = [] if known is None else [self._state.broadcasts.get(n) for n in range(known, self.round)]
        held = [data for data in missed if data is not None]
        whole = OVERHEAD_BYTES + 4 * len(self._state.prompt)
        if known is not None and known < self.round and len(held) == len(missed) and sum(map(len, held)) < whole:
            return held
        return [pack(Snapshot(self.round, self.prompt))]

    def accept(self, sender: int, data: bytes) -> None:
        """Count the update ``data`` of the node that the transport knows as ``sender``. Raises Rejected."""
        try:
            update = self._check(sender, data)
        except Rejected as rejected:
            self._rejected[rejected.reason] += 1
            raise
        if self._folder is not None:
            disk.keep_update(self._folder, self.round, sender, data)
        self._updates[sender] = update

    def close(self) -> Closed:
        """Make one update of all, broadcast it, open the next round. Raises Unavailable below the quorum, and then
        changes nothing: the round stays open."""
        options, state = self.options, self._state
        if len(self._updates) < options.quorum:
            raise Unavailable(
                f"Round {self.round} has {len(self._updates)} updates and needs {options.quorum}; wait for more nodes."
            )
        nodes = sorted(self._updates)  # the order of arrival must not change the sum
        updates = clip_norms(np.stack([self._updates[node].sparse.dense() for node in nodes]), options.clip)
        examples = np.array([1 if options.noise else self._updates[node].examples for node in nodes], np.int64)
        scores = np.array([state.scores.get(node, 0.0) for node in nodes])
        answers = heard(state.answers, nodes, updates, state.moved, self.round)
        change, scores = aggregate(
            options.rule, updates, examples, scores, centre=state.centre, clip=options.clip,
            weight_cap=options.weight_cap, doubted=doubts(answers, nodes),
        )  # fmt: skip
        if options.noise:
            change = noised(change, len(nodes), options.clip, options.noise, self._rng)
        moved, moments = step(
            options.server, Moments(state.first, state.second), change, self.round,
            rate=options.rate, horizon=options.horizon,
        )  # fmt: skip
        feedback = Feedback(len(state.prompt), state.residual)
        sparse = feedback.encode(moved, options.keep)
        message = pack(Update(options.rows, options.width, self.round, 0, self._base, len(nodes), sparse))
        kept = {n: data for n, data in state.broadcasts.items() if n > self.round - options.history}
        told = sparse.dense()
        after = disk.State(
            options, self.round + 1, state.prompt + told, change, feedback.residual, *moments, told,
            kept | {self.round: message} if options.history else {},
            state.scores | dict(zip(nodes, scores.tolist(), strict=True)),
            state.answers | noted(answers, nodes, updates, told, self.round, options.clip),
        )  # fmt: skip
        if self._folder is not None:
            disk.save(self._folder, after)
            disk.drop_updates(self._folder, after.round)
        closed = Closed(self.round, len(nodes), dict(self._rejected), sparse.norm)
        self._state, self._updates, self._base = after, {}, digest(after.prompt)
        self._rejected.clear()
        return closed

    def _check(self, sender: int, data: bytes) -> Update:
        options = self.options
        if self._members is not None and sender not in self._members:
            raise Rejected("stranger", f"Node {sender} is not a member of this federation; register it first.")
        update = unpack(data)
        if isinstance(update, Snapshot) or update.node == 0:
            raise Rejected("malformed", "A message of the server came back; a node sends updates of its own.")
        if update.node != sender:
            raise Rejected("stranger", f"Node {sender} sent an update that names node {update.node}; send your own.")
        if (update.rows, update.width) != (options.rows, options.width):
            came, expected = f"[{update.rows}, {update.width}]", f"[{options.rows}, {options.width}]"
            raise Rejected("shape", f"An update of a prompt {came} came; this federation trains {expected}.")
        if update.round < self.round:
            raise Rejected("late", f"An update of round {update.round} came; round {self.round} is open. Catch up.")
        if update.round > self.round:
            raise Rejected("early", f"An update of round {update.round} came; round {self.round} is open. Catch up.")
        if sender in self._updates:
            raise Rejected("replayed", f"Node {sender} has sent its update of round {self.round} already; one counts.")
        if update.base != self._base:
            raise Rejected("stale", f"The update builds on another prompt than that of round {self.round}. Catch up.")
        return update
