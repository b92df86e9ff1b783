"""How often one client may ask: a token bucket per client, and a bounded number of clients that are remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_CLIENTS = 10_000
BURST_S = 5.0  # a client may save up what it is given in so many seconds


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float


class Rates:
    """Token buckets (Turner 1986): ``per_minute`` tokens flow in evenly, a request takes one.

    Of more than ``max_clients`` the one that has been away longest is forgotten: an attacker with many addresses
    gains full buckets, which it has anyway, and no memory.
    """

    def __init__(self, clock: Callable[[], float], *, max_clients: int = MAX_CLIENTS) -> None:
        self._clock = clock
        self._max_clients = max_clients
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def take(self, client: Hashable, per_minute: int) -> float:
        """Take a token of ``client``: 0.0 where there is one, else the seconds until there will be. 0: no limit."""
        if per_minute <= 0:
            return 0.0
        now, per_s = self._clock(), per_minute / 60
        most = max(1.0, per_s * BURST_S)
        bucket = self._buckets.pop(client, None) or _Bucket(most, now)
        self._buckets[client] = bucket
        if len(self._buckets) > self._max_clients:
            self._buckets.popitem(last=False)
        bucket.tokens = min(most, bucket.tokens + (now - bucket.filled) * per_s)
        bucket.filled = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / per_s
        bucket.tokens -= 1
        return 0.0

    def __len__(self) -> int:
        return len(self._buckets)
