"""A cache that is bounded in bytes: what was not asked for longest goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheUse:
    """``hits`` and ``misses`` since the start; ``entries`` and ``bytes`` held now."""

    hits: int
    misses: int
    entries: int
    bytes: int


class ByteCache(Generic[Key, Value]):
    """Thread-safe. ``limit`` 0 keeps nothing; a value larger than the whole cache is not kept."""

    def __init__(self, limit: int, size: Callable[[Value], int]) -> None:
        """``limit`` in bytes; ``size`` says how many a value takes."""
        self._limit = limit
        self._size = size
        self._lock = threading.Lock()
        self._held: OrderedDict[Key, Value] = OrderedDict()
        self._bytes = self._hits = self._misses = 0

    def get(self, key: Key) -> Value | None:
        """What was kept for ``key``, if it is still here."""
        with self._lock:
            if key not in self._held:
                self._misses += 1
                return None
            self._hits += 1
            self._held.move_to_end(key)
            return self._held[key]

    def put(self, key: Key, value: Value) -> None:
        """Keep ``value``, and let others go for it."""
        size = self._size(value)
        if size > self._limit:
            return
        with self._lock:
            if key in self._held:
                self._bytes -= self._size(self._held.pop(key))
            self._held[key] = value
            self._bytes += size
            while self._bytes > self._limit:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= self._size(oldest)

    def items(self) -> list[tuple[Key, Value]]:
        """All that is here, the one asked for last at the end. Counts as neither hit nor miss."""
        with self._lock:
            return list(self._held.items())

    @property
    def use(self) -> CacheUse:
        """How it has served so far."""
        with self._lock:
            return CacheUse(self._hits, self._misses, len(self._held), self._bytes)
