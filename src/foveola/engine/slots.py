"""Which row of the KV buffers belongs to which request.

Ownership. Every layer has one buffer ``[slots, kv_heads, max_length, head_dim]`` for keys and one for values, made
by the runner at start and never grown. A row changes hands like this:

    row:      0        1        2        3
            [ seq A ][ seq C ][ free  ][ free  ]      active rows are always 0 .. active-1, without a gap
                              |<- acquire() hands out the first free row
    position 0 ........ length ............ max_length
             [ written  |  garbage of earlier owners ]

* From ``acquire`` to ``release`` the row is its owner's: only the owner's prefill and decode write it, and only the
  positions below the owner's own ``length`` are ever read. Garbage above it is harmless, so nothing is cleared.
* ``release`` closes the gap: the last active row moves into the freed one, and the caller must copy
  ``[0, length)`` of it (``Runner.move``) before the next step. So decode always runs on one contiguous view
  ``[0:active]``, and no step copies or gathers KV.
* All of it happens on the engine's thread; nothing here locks.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

Owner = TypeVar("Owner")


class Move(NamedTuple):
    """A row to be copied so that the active rows stay contiguous."""

    source: int
    target: int


class Slots(Generic[Owner]):
    """Hands out the rows ``0 .. count-1`` and remembers the owner of each; owners are compared by identity."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"an engine needs at least one slot, got {count}")
        self._count = count
        self._owners: list[Owner] = []

    @property
    def free(self) -> int:
        """How many rows nobody owns."""
        return self._count - len(self._owners)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The owners of rows ``0 .. active-1``, in the order of their rows."""
        return tuple(self._owners)

    def row(self, owner: Owner) -> int:
        """The row of ``owner``. Raises ``LookupError`` where it owns none."""
        for row, other in enumerate(self._owners):
            if other is owner:
                return row
        raise LookupError("this owner holds no slot")

    def acquire(self, owner: Owner) -> int:
        """Give ``owner`` the first free row and return it. Raises ``LookupError`` when all are taken."""
        if not self.free:
            raise LookupError("every slot has an owner")
        if any(other is owner for other in self._owners):
            raise LookupError("this owner already holds a slot")
        self._owners.append(owner)
        return len(self._owners) - 1

    def release(self, owner: Owner) -> Move | None:
        """Take the row back; a ``Move`` says which row the caller has to copy. Raises ``LookupError`` if not owned."""
        row = self.row(owner)
        last = self._owners.pop()
        if row == len(self._owners):
            return None
        self._owners[row] = last
        return Move(source=len(self._owners), target=row)
