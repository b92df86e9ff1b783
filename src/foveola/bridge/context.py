"""What was going on at a place at a time: lots in process and last objects, from events that come late.

Devices have clocks of their own. The offset of each is estimated from the smallest difference between arrival and its
own time stamp (the message that was delayed least), as in NTP's minimum filter (RFC 5905, section 10), over a window.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from foveola.bridge.payload import Context

What = Literal["lot", "object"]


@dataclass(frozen=True, slots=True)
class Event:
    """A lot that entered a place, or an object that was seen there. ``value`` None: the place is empty from now on."""

    source: str
    place: str
    what: What
    value: str | None
    at_s: float
    arrived_s: float


class Clocks:
    """How far each source's clock is behind ours, in seconds."""

    def __init__(self, window: int = 64) -> None:
        self._seen: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=window))

    def seen(self, source: str, at_s: float, arrived_s: float) -> float:
        """Note a message and return its time on our clock."""
        self._seen[source].append(arrived_s - at_s)
        return self.ours(source, at_s)

    def offset_s(self, source: str) -> float:
        """To be added to the source's time; includes its shortest delay on the way."""
        return min(self._seen[source], default=0.0)

    def ours(self, source: str, at_s: float) -> float:
        """The source's time on our clock."""
        return at_s + self.offset_s(source)


class ContextBook:
    """Remembers the last ``keep`` changes of each place in the order in which they happened, not in which they came."""

    def __init__(self, *, keep: int = 256, unsettled_s: float = 2.0) -> None:
        self.clocks = Clocks()
        self._keep = keep
        self._unsettled_s = unsettled_s
        self._times: dict[tuple[str, What], list[float]] = defaultdict(list)
        self._values: dict[tuple[str, What], list[str | None]] = defaultdict(list)
        self._lock = Lock()

    def observe(self, event: Event) -> None:
        """Put an event where it belongs in time."""
        with self._lock:
            at = self.clocks.seen(event.source, event.at_s, event.arrived_s)
            times, values = self._times[event.place, event.what], self._values[event.place, event.what]
            index = bisect.bisect_right(times, at)
            times.insert(index, at)
            values.insert(index, event.value)
            if len(times) > self._keep:
                del times[0], values[0]

    def at(self, place: str, source: str, at_s: float, arrived_s: float) -> Context:
        """The context of words that ``source`` dates ``at_s``.

        ``settled`` is False when the lot changed within ``unsettled_s`` of that moment: whoever spoke may have meant
        the one before or the one after.
        """
        with self._lock:
            moment = self.clocks.seen(source, at_s, arrived_s)
            lot, lot_settled = self._value(place, "lot", moment)
            seen, _ = self._value(place, "object", moment)
        return Context(place, moment, lot, seen, lot_settled)

    def _value(self, place: str, what: What, moment: float) -> tuple[str | None, bool]:
        times, values = self._times[place, what], self._values[place, what]
        index = bisect.bisect_right(times, moment) - 1
        value = values[index] if index >= 0 else None
        low = bisect.bisect_left(times, moment - self._unsettled_s)
        high = bisect.bisect_right(times, moment + self._unsettled_s)
        around = {values[i] for i in range(max(low - 1, 0), high)} if high > low else {value}
        return value, len(around) <= 1
