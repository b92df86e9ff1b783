"""How busy the memory is: hardware counters where the machine shows them, a probe of the STREAM kind where not.

The probe reads an array that no cache holds. Alone it tells what can be read; beside a load, what the load leaves. The
difference is what the load takes, from below: the two also wait for each other.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PROBE_BYTES = 64 * 1024 * 1024
EVENTS = ("cache-references", "cache-misses", "LLC-loads", "LLC-load-misses")
PERF_TIMES = 30
"""How often perf is told to end, a second apart."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per second that a probe read alone and beside the load, and cache counters of the load, None where the
    machine shows none; ``why`` says then what is in the way."""

    alone_bytes_s: float
    beside_bytes_s: float
    miss_rate: float | None
    why: str

    @property
    def taken_bytes_s(self) -> float:
        """What the load takes at least."""
        return max(0.0, self.alone_bytes_s - self.beside_bytes_s)


def read_bandwidth(seconds: float, *, stop: threading.Event | None = None) -> float:
    """Bytes per second of one thread that sums up a large array, for ``seconds``."""
    array = np.ones(PROBE_BYTES // 8)
    began, passes = time.perf_counter(), 0
    while True:
        array.sum()
        passes += 1
        elapsed = time.perf_counter() - began
        if elapsed >= seconds or (stop is not None and stop.is_set()):
            return passes * array.nbytes / elapsed


def measure(load: Callable[[], None], *, probe_s: float = 0.5) -> Memory:
    """Run ``load`` to its end, once with the probe beside it and once under the counters."""
    alone = read_bandwidth(probe_s)
    stop = threading.Event()
    found: list[float] = []
    probe = threading.Thread(target=lambda: found.append(read_bandwidth(3600.0, stop=stop)))
    probe.start()
    try:
        load()
    finally:
        stop.set()
        probe.join()
    rate, why = miss_rate(load)
    return Memory(alone, found[0], rate, why)


def miss_rate(load: Callable[[], None], *, perf: str | None = None) -> tuple[float | None, str]:
    """The share of cache references that miss while ``load`` runs in this process; None, and why, where perf can't."""
    program = perf or shutil.which("perf")
    if program is None:
        load()
        return None, "perf is not installed"
    command = [program, "stat", "-x", ",", "-e", ",".join(EVENTS), "-p", str(os.getpid())]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        load()
    finally:
        told = _ended(process)
    return parse_perf(told) if told is not None else (None, "perf did not end when it was told to")


def _ended(process: subprocess.Popen[str]) -> str | None:
    """What perf prints at its end, where it can be brought to one. It is told again and again: an interrupt that comes
    before perf listens is lost where a shell started all this in the background."""
    for _ in range(PERF_TIMES):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.communicate()
    return None


def parse_perf(told: str) -> tuple[float | None, str]:
    """The miss rate in what ``perf stat -x ,`` printed, the last-level cache's where it is counted."""
    counts: dict[str, float] = {}
    for line in told.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[0].replace(".", "").isdigit():
            counts[fields[2].partition(":")[0]] = float(fields[0])
    for missed, asked in (("LLC-load-misses", "LLC-loads"), ("cache-misses", "cache-references")):
        if counts.get(asked):
            return counts.get(missed, 0.0) / counts[asked], ""
    if "not supported" in told or "not counted" in told:
        return None, "this machine (a virtual one, most likely) shows no hardware counters"
    return None, "perf may not count here (see perf_event_paranoid)"
