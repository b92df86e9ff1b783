"""Which row of the KV buffers belongs to which request.

Ownership. Every layer has one buffer ``[slots + 1, kv_heads, max_length, head_dim]`` for keys and one for values, made
by the runner at start and never grown. A row changes hands like this:

    row:      0        1        2        3                    slots
            [ seq A ][ seq C ][ seq D ][ free  ]  ...        [ spare ]
            |<---- running --->|<filling>|                    for swapping two rows
                                         |<- acquire() hands out the first free row
    position 0 ........ length ............ max_length
             [ written  |  garbage of earlier owners ]

* From ``acquire`` to ``release`` the row is its owner's: only the owner's prefill and decode write it, and only the
  positions below the owner's own ``length`` are ever read. Garbage above it is harmless, so nothing is cleared.
* A row is *filling* until its whole prompt is in it, then ``promote`` makes it *running*. Running rows are always
  ``0 .. running-1``, without a gap, and the filling ones follow. So decode runs on one contiguous view, and no step
  copies or gathers KV.
* ``promote`` and ``release`` say which rows have to be copied to keep it so: the caller must copy ``[0, length)`` of
  each (``Runner.move``), in order, before the next step. Most of the time there is nothing to copy.
* All of it happens on the engine's thread; nothing here locks.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

Owner = TypeVar("Owner")


class Move(NamedTuple):
    """A row to be copied so that the running rows stay contiguous."""

    source: int
    target: int


class Slots(Generic[Owner]):
    """Hands out the rows ``0 .. count-1`` and remembers the owner of each; owners are compared by identity."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"an engine needs at least one slot, got {count}")
        self._count = count
        self._owners: list[Owner] = []
        self._running = 0

    @property
    def free(self) -> int:
        """How many rows nobody owns."""
        return self._count - len(self._owners)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The owners of all rows that have one, in the order of their rows."""
        return tuple(self._owners)

    @property
    def running(self) -> tuple[Owner, ...]:
        """The owners of rows ``0 .. running-1``, in the order of their rows."""
        return tuple(self._owners[: self._running])

    def row(self, owner: Owner) -> int:
        """The row of ``owner``. Raises ``LookupError`` where it owns none."""
        for row, other in enumerate(self._owners):
            if other is owner:
                return row
        raise LookupError("this owner holds no slot")

    def acquire(self, owner: Owner) -> int:
        """Give ``owner`` the first free row, to fill it. Raises ``LookupError`` when all are taken."""
        if not self.free:
            raise LookupError("every slot has an owner")
        if any(other is owner for other in self._owners):
            raise LookupError("this owner already holds a slot")
        self._owners.append(owner)
        return len(self._owners) - 1

    def promote(self, owner: Owner) -> list[tuple[Move, Owner]]:
        """The row of ``owner`` is filled and runs from now on. Raises ``LookupError`` if it runs already."""
        row, first = self.row(owner), self._running
        if row < first:
            raise LookupError("this owner's row runs already")
        self._running += 1
        if row == first:
            return []
        other = self._owners[first]
        self._owners[first], self._owners[row] = owner, other
        spare = self._count
        return [(Move(row, spare), owner), (Move(first, row), other), (Move(spare, first), owner)]

    def release(self, owner: Owner) -> list[tuple[Move, Owner]]:
        """Take the row back. Raises ``LookupError`` if it is not owned."""
        row = self.row(owner)
        moves = []
        if row < self._running:
            self._running -= 1
            moves += self._fill(row, self._running)
            row = self._running
        last = len(self._owners) - 1
        moves += self._fill(row, last)
        self._owners.pop()
        return moves

    def _fill(self, row: int, source: int) -> list[tuple[Move, Owner]]:
        """The owner of ``source`` takes ``row``."""
        if row == source:
            return []
        self._owners[row] = self._owners[source]
        return [(Move(source, row), self._owners[row])]
