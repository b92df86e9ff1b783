"""Several pictures at once through the vision graph, beside the engine's thread.

A picture takes the vision graph tens of milliseconds of plain arithmetic, and needs no KV row meanwhile. So pictures
are encoded in threads of their own, while the engine's thread goes on with prompts and tokens of others: nobody's next
token waits for somebody's picture, and all cores have work where one picture does not split well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from foveola.engine.features import Selected
from foveola.engine.pictures import EncoderInput
from foveola.engine.runner import LARGE_ROWS, Runner


class Seen(NamedTuple):
    """What the vision graph made of a picture, and the seconds that it took."""

    selected: Selected
    seconds: float


@dataclass(frozen=True, slots=True)
class _Key:
    version: str
    name: bytes


class Eyes:
    """Threads that run vision graphs. All methods are the engine's thread's; ``on_seen`` is called from the others."""

    def __init__(self, count: int, on_seen: Callable[[], None]) -> None:
        """At most ``count`` pictures at once; ``on_seen`` says that one more is done."""
        self._count = count
        self._on_seen = on_seen
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="foveola-eye")
        self._looking: dict[_Key, Future[Seen]] = {}
        self._large = threading.Lock()

    def look(self, runner: Runner, picture: EncoderInput) -> Future[Seen] | None:
        """Have ``picture`` encoded by ``runner``; the same one is encoded once, whoever asks meanwhile. None where all
        eyes are busy with others."""
        key = _Key(runner.version.model_hash, picture.name)
        future = self._looking.get(key)
        self._looking = {key: other for key, other in self._looking.items() if not other.done()}
        if future is None and len(self._looking) < self._count:
            future = self._looking[key] = self._pool.submit(self._encode, runner, picture)
            future.add_done_callback(lambda _: self._on_seen())
        return future

    def close(self) -> None:
        """Look at nothing more; what is under way ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _encode(self, runner: Runner, picture: EncoderInput) -> Seen:
        if picture.packed.patches <= LARGE_ROWS:
            return _timed(runner, picture)
        with self._large:  # its scratch memory is in the square of the patches: never twice at once
            return _timed(runner, picture)


def _timed(runner: Runner, picture: EncoderInput) -> Seen:
    started = time.perf_counter()
    selected = runner.encode(picture.packed)
    return Seen(selected, time.perf_counter() - started)
