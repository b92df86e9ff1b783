"""Load on a server: closed loops of so many clients, and open loops in which requests come whether or not it keeps up.

In an open loop a request's latency counts from the moment at which it was due, so that a server that stalls is not
spared the requests which it kept from being sent (coordinated omission).
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from foveola.bench.sample import Item, Sample
from foveola.bench.stats import percentile
from foveola.exchange import Unavailable

Kind = Literal["closed", "open"]
MAX_CLIENTS = 128


class Asker(Protocol):
    """A connection to the server; ``foveola.bench.server.Client`` is one."""

    def stream(self, item: Item, max_tokens: int) -> Sample:
        """One answer. Raises ``Unavailable`` where it was refused."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it was due and when it was over, in seconds of the run; ``sample`` None where refused."""

    due_s: float
    done_s: float
    sample: Sample | None

    @property
    def latency_s(self) -> float:
        """From when it was due to its end."""
        return self.done_s - self.due_s


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What a server did under one load: ``level`` clients at once (closed) or requests per second (open).

    ``images_per_s`` counts answers; latencies are milliseconds, of answers only; ``refused`` is a share.
    """

    kind: Kind
    level: float
    requests: int
    images_per_s: float
    latency_ms: dict[str, float]
    first_ms: dict[str, float]
    refused: float

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def closed_loop(connect: Callable[[], Asker], items: Sequence[Item], clients: int, max_tokens: int) -> list[Arrival]:
    """Ask all ``items``, ``clients`` at once, each asking again as soon as it has its answer."""
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    began = time.perf_counter()

    def work(asker: Asker, arrivals: list[Arrival]) -> None:
        while True:
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            due = time.perf_counter() - began
            sample = _asked(asker, item, max_tokens)
            arrivals.append(Arrival(due, time.perf_counter() - began, sample))

    return _together(connect, clients, work)


def open_loop(
    connect: Callable[[], Asker], items: Sequence[Item], rate: float, max_tokens: int, *, seed: int = 0
) -> list[Arrival]:
    """Ask ``items`` at random moments, ``rate`` a second on average (a Poisson process), whatever the server does.

    At most ``MAX_CLIENTS`` are under way at once; who comes beyond that waits, and its waiting counts.
    """
    chance = random.Random(seed)
    due, at = [], 0.0
    for item in items:
        at += chance.expovariate(rate)
        due.append((at, item))
    coming = iter(due)
    lock = threading.Lock()
    began = time.perf_counter()

    def work(asker: Asker, arrivals: list[Arrival]) -> None:
        while True:
            with lock:
                moment, item = next(coming, (None, None))
            if moment is None or item is None:
                return
            time.sleep(max(0.0, moment - (time.perf_counter() - began)))
            sample = _asked(asker, item, max_tokens)
            arrivals.append(Arrival(moment, time.perf_counter() - began, sample))

    return _together(connect, min(MAX_CLIENTS, len(items)), work)


def _asked(asker: Asker, item: Item, max_tokens: int) -> Sample | None:
    try:
        return asker.stream(item, max_tokens)
    except Unavailable:
        return None


def _together(
    connect: Callable[[], Asker], clients: int, work: Callable[[Asker, list[Arrival]], None]
) -> list[Arrival]:
    """Run ``work`` in a thread per client; connections are opened before and closed after. Raises what one raised."""
    arrivals: list[Arrival] = []
    failures: list[BaseException] = []
    askers = [connect() for _ in range(clients)]

    def run(asker: Asker) -> None:
        try:
            work(asker, arrivals)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(asker,)) for asker in askers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for asker in askers:
        asker.close()
    if failures:
        raise failures[0]
    return sorted(arrivals, key=lambda one: one.due_s)


def point_of(kind: Kind, level: float, arrivals: Sequence[Arrival]) -> LoadPoint:
    """The figures of a run. Raises ``Unavailable`` where nothing was answered at all."""
    answered = [one for one in arrivals if one.sample is not None]
    if not answered:
        raise Unavailable(f"Not one of {len(arrivals)} requests was answered at level {level:g}; ask for less at once.")
    seconds = max(one.done_s for one in arrivals) - min(one.due_s for one in arrivals)
    firsts = [one.sample.first_s * 1000 for one in answered if one.sample is not None]
    latencies = [one.latency_s * 1000 for one in answered]
    return LoadPoint(
        kind,
        level,
        len(arrivals),
        round(len(answered) / seconds, 3) if seconds else 0.0,
        _percentiles(latencies),
        _percentiles(firsts),
        round(1 - len(answered) / len(arrivals), 4),
    )


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{p}": round(percentile(values, p), 2) for p in (50, 95, 99)}
