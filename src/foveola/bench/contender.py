"""Who is measured: anything that answers items. And the closed loop that asks several of them at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from foveola.bench.sample import Block, Item, Sample
from foveola.exchange import Refusal


class CannotTakePart(Refusal):
    """A contender cannot be measured here; the message says what is missing."""

    code = "cannot_take_part"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a contender is opened with. ``source`` is a bundle or a checkpoint, ``threads`` compute one graph."""

    source: Path
    threads: int
    max_tokens: int


class Contender(Protocol):
    """Answers items greedily, in a process of its own, so that memory and threads are not mixed with others'."""

    @property
    def name(self) -> str:
        """Whom the table shows."""

    def run(self, items: Sequence[Item], concurrency: int) -> Block:
        """Answer ``items``, ``concurrency`` at once. Raises what the contender refuses."""

    def peak_memory(self) -> int:
        """Bytes that its process has ever held at once, loading included."""

    def close(self) -> None:
        """End its process."""


def drive(ask: Callable[[Item], Sample], items: Sequence[Item], concurrency: int) -> Block:
    """Ask ``items`` through ``ask``, always ``concurrency`` of them at once until all are asked (a closed loop)."""
    started = time.perf_counter()
    if concurrency == 1:
        samples = [ask(item) for item in items]
    else:
        with ThreadPoolExecutor(concurrency) as pool:
            samples = list(pool.map(ask, items))
    return Block(tuple(samples), time.perf_counter() - started)
