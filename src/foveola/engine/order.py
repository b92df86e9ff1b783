"""Who is next: higher priority first, and between the clients of one priority, fair shares.

Start-time fair queueing (Goyal, Vin and Cheng 1996): every request gets a start tag when it comes, the later of the
queue's virtual time and its client's last finish tag; it costs as many units as it may take tokens; the smallest start
tag is next. A client that asks for much waits for itself, not the others for it. Whoever waits long rises: one
priority for every ``patience_s`` seconds, so that no stream of urgent requests starves the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """What the order needs to know of a request."""

    @property
    def priority(self) -> int:
        """Higher goes first."""

    @property
    def client(self) -> str:
        """Whose share it counts to."""

    @property
    def cost(self) -> int:
        """Tokens that it may take."""

    @property
    def queued_at(self) -> float:
        """Since when it waits, in seconds on the engine's clock."""


Item = TypeVar("Item", bound=Queued)


class FairOrder(Generic[Item]):
    """The requests that wait. Not thread-safe; few enough that it looks at all of them."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: list[tuple[float, int, Item]] = []  # start tag, number of arrival
        self._finish: dict[str, float] = {}  # per client, above the virtual time
        self._virtual = 0.0
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, item: Item) -> None:
        """One more waits."""
        start = max(self._virtual, self._finish.get(item.client, 0.0))
        self._finish[item.client] = start + item.cost
        self._arrivals += 1
        self._waiting.append((start, self._arrivals, item))

    def best(self, now: float) -> Item | None:
        """Who is next; stays where it is. None where nobody waits."""
        if not self._waiting:
            return None
        return min(self._waiting, key=lambda entry: self._rank(entry, now))[2]

    def remove(self, item: Item) -> bool:
        """``item`` waits no more, because it is served or because it left. False where it was not here."""
        for index, (start, _, other) in enumerate(self._waiting):
            if other is item:
                del self._waiting[index]
                self._virtual = max(self._virtual, start)
                self._finish = {client: tag for client, tag in self._finish.items() if tag > self._virtual}
                return True
        return False

    def remove_all(self, condition: Callable[[Item], bool]) -> list[Item]:
        """Those for whom ``condition`` holds wait no more; returns them in the order of their arrival."""
        taken = [item for _, _, item in self._waiting if condition(item)]
        for item in taken:
            self.remove(item)
        return taken

    def _rank(self, entry: tuple[float, int, Item], now: float) -> tuple[int, float, int]:
        start, arrival, item = entry
        risen = int(max(0.0, now - item.queued_at) / self._patience_s)
        return (-(item.priority + risen), start, arrival)
