"""Which packed tensor is loaded while which layer runs: a schedule for chips with DMA engines, and its overlap.

Such a chip computes out of a small fast memory and has one or more engines that fill it meanwhile. Layers run in
order; a layer's weights must be there before it starts, and their room is free again when it has run. The schedule
loads as early as room and engine allow. Everything here is *modelled*: sizes are facts, times are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foveola.exchange import Invalid

ALIGNMENT = 16
"""Bytes; transfers begin and end on 128-bit boundaries."""


@dataclass(frozen=True, slots=True)
class Load:
    """One layer: its name, the storage of its weights, their bytes in the file, and how long it computes."""

    layer: str
    storage: str
    bytes: int
    compute_us: float


@dataclass(frozen=True, slots=True)
class Engine:
    """The chip's fast memory and its way there: bytes of room, bytes per microsecond, transfers at once, start-up."""

    room_bytes: int
    bytes_per_us: float
    channels: int = 1
    setup_us: float = 1.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """When a layer's weights travel and when it runs, in microseconds from the start."""

    layer: str
    storage: str
    bytes: int
    load_us: tuple[float, float]
    run_us: tuple[float, float]
    during: str | None
    """The layer that runs when the transfer begins; None before the first."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All transfers in order; ``overlap`` is the share of transfer time hidden behind computing."""

    transfers: tuple[Transfer, ...]
    total_us: float
    serial_us: float
    overlap: float

    def to_json(self) -> dict[str, Any]:
        """As data for a bundle or a report, marked as modelled."""
        return {
            "modelled": True,
            "total_us": round(self.total_us, 3),
            "serial_us": round(self.serial_us, 3),
            "overlap": round(self.overlap, 4),
            "transfers": [
                {
                    "layer": one.layer,
                    "storage": one.storage,
                    "bytes": one.bytes,
                    "load_us": [round(t, 3) for t in one.load_us],
                    "run_us": [round(t, 3) for t in one.run_us],
                    "during": one.during,
                }
                for one in self.transfers
            ],
        }


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """``size`` rounded up to whole boundaries."""
    return -(-size // alignment) * alignment


def schedule(loads: Sequence[Load], engine: Engine) -> Schedule:
    """The earliest schedule for layers that run in this order. Raises ``Invalid`` for one that finds no room at all."""
    free_at = [0.0] * engine.channels
    finished: list[float] = []  # when the layers so far have run
    began: list[tuple[float, float]] = []
    transfers: list[Transfer] = []
    for index, load in enumerate(loads):
        size = aligned(load.bytes)
        if size > engine.room_bytes:
            raise Invalid(
                f"{load.layer} needs {size} bytes at once; the fast memory holds {engine.room_bytes}. Split the layer.",
                field="room_bytes",
            )
        channel = min(range(engine.channels), key=free_at.__getitem__)
        start = max(free_at[channel], _room_at(loads[: index + 1], finished, engine.room_bytes))
        end = start + engine.setup_us + size / engine.bytes_per_us
        free_at[channel] = end
        run = max(end, finished[-1] if finished else 0.0)
        finished.append(run + load.compute_us)
        during = next((loads[i].layer for i, (a, b) in enumerate(began) if a <= start < b), None)
        began.append((run, finished[-1]))
        transfers.append(Transfer(load.layer, load.storage, size, (start, end), (run, finished[-1]), during))
    moving = sum(one.load_us[1] - one.load_us[0] for one in transfers)
    computing = sum(load.compute_us for load in loads)
    total = finished[-1] if finished else 0.0
    hidden = max(0.0, moving + computing - total)
    return Schedule(tuple(transfers), total, moving + computing, min(1.0, hidden / moving) if moving else 1.0)


def _room_at(loads: Sequence[Load], finished: Sequence[float], room: int) -> float:
    """When there is room for the last of ``loads``: the earlier ones hold theirs until they have run."""
    needed = aligned(loads[-1].bytes)
    held = needed
    for index in range(len(loads) - 2, -1, -1):
        held += aligned(loads[index].bytes)
        if held > room:
            return finished[index]
    return 0.0
