"""Red zones: known bytes before and behind every buffer that a graph reads or writes, looked at after a run.

A kernel that writes past its buffer, or a buffer that is bound with a wrong shape, changes them, and the engine stops
answering before the result is used. What stays inside a buffer (one KV row running into the next) is not seen; the
runner's own check of lengths is for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
ALIGNMENT = 64  # of the buffer: a cache line, and the widest vector register
_PATTERN = 0xA5


class MemoryOverrun(Exception):
    """Something wrote outside of the buffer that the message names: what the engine holds cannot be trusted."""


@dataclass(frozen=True, slots=True)
class _Zone:
    buffer: str
    side: str
    view: memoryview
    expected: bytes


class RedZones:
    """Makes arrays between red zones and checks them. Used by one thread; ``checks`` counts how often it looked."""

    def __init__(self, zone_bytes: int, every: int = 1) -> None:
        """``zone_bytes`` on each side, 0 for none at all; lasting buffers are looked at in every ``every``-th check."""
        self._size = math.ceil(zone_bytes / ALIGNMENT) * ALIGNMENT
        self._every = max(1, every)
        self._lasting: list[_Zone] = []
        self._passing: list[_Zone] = []
        self._runs = 0
        self.checks = 0

    def lasting(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Float32 zeros that stay; they take no memory where nobody writes. An overrun is told by ``name``."""
        return self._between(name, shape, self._lasting)

    def passing(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Float32 zeros for the next run only: after the next check their red zones are looked at no more."""
        return self._between(name, shape, self._passing)

    def check(self) -> None:
        """Look at the zones. Raises ``MemoryOverrun`` naming the buffer, the side and the distance."""
        passing, self._passing = self._passing, []
        self._runs += 1
        zones = passing if self._runs % self._every else [*passing, *self._lasting]
        for zone in zones:
            if zone.view.tobytes() != zone.expected:  # a fifth of the time that comparing the view takes
                raise MemoryOverrun(_told(zone))
        self.checks += 1

    def _between(self, name: str, shape: tuple[int, ...], zones: list[_Zone]) -> Floats:
        if not self._size:
            return np.zeros(shape, np.float32)
        size = math.prod(shape) * 4
        whole = np.zeros(ALIGNMENT + self._size + size + self._size, np.uint8)
        start = -(whole.ctypes.data + self._size) % ALIGNMENT + self._size
        pattern = bytes([_PATTERN]) * self._size
        for side, low in (("before", start - self._size), ("behind", start + size)):
            zone = whole[low : low + self._size]
            zone[:] = _PATTERN
            zones.append(_Zone(name, side, zone.data, pattern))
        return whole[start : start + size].view(np.float32).reshape(shape)


def _told(zone: _Zone) -> str:
    wrong = np.flatnonzero(np.frombuffer(zone.view, np.uint8) != _PATTERN)
    near = int(wrong[0]) if zone.side == "behind" else len(zone.expected) - 1 - int(wrong[-1])
    return (
        f"{len(wrong)} bytes {zone.side} the buffer `{zone.buffer}` were overwritten, the nearest {near} bytes away: "
        "a kernel wrote outside of its output, or a buffer was bound with a wrong shape. Try `foveola memcheck` on the "
        "bundle."
    )
