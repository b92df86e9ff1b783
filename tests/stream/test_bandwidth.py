from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from foveola.stream import bandwidth
from foveola.stream.bandwidth import measure, miss_rate, parse_perf, read_bandwidth

PERF = (
    "1000,,LLC-loads,5,100.00,,\n250,,LLC-load-misses:u,5,100.00,,\n"
    "9000,,cache-references,5,100,,\n90,,cache-misses,5,,,\n"
)


def test_what_perf_prints_is_read() -> None:
    assert parse_perf(PERF) == (0.25, "")
    assert parse_perf("\n".join(PERF.splitlines()[2:])) == (0.01, "")
    assert parse_perf("<not supported>,,LLC-loads,0,100.00,,\n<not supported>,,cache-misses,0,,,\n") == (
        None,
        "this machine (a virtual one, most likely) shows no hardware counters",
    )
    assert parse_perf("") == (None, "perf may not count here (see perf_event_paranoid)")


def test_the_probe_reads_memory_and_stops_when_told() -> None:
    assert read_bandwidth(0.05) > 1e7
    stop = threading.Event()
    stop.set()
    assert read_bandwidth(3600, stop=stop) > 1e7


def test_a_load_is_measured_or_it_is_said_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    memory = measure(lambda: ran.append(1), probe_s=0.05)
    assert len(ran) == 2
    assert memory.alone_bytes_s > 0
    assert memory.taken_bytes_s >= 0
    assert (memory.miss_rate is None) == bool(memory.why)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert miss_rate(lambda: ran.append(2)) == (None, "perf is not installed")


SLOW_PERF = """#!{python}
import pathlib, signal, sys, time
told = []
signal.signal(signal.SIGINT, lambda *_: told.append(1))
pathlib.Path({ready!r}).touch()
while len(told) < {needed}:
    time.sleep(0.01)
print("75,,LLC-load-misses\\n100,,LLC-loads", file=sys.stderr)
"""


@pytest.mark.parametrize(("needed", "found"), [(2, (0.75, "")), (99, (None, "perf did not end when it was told to"))])
def test_perf_that_misses_its_first_interrupt_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: int, found: tuple[float | None, str]
) -> None:
    monkeypatch.setattr(bandwidth, "PERF_TIMES", 3)
    program, ready = tmp_path / "perf", tmp_path / "ready"
    program.write_text(SLOW_PERF.format(python=sys.executable, ready=str(ready), needed=needed))
    program.chmod(0o755)

    def load() -> None:
        while not ready.exists():
            time.sleep(0.01)

    assert miss_rate(load, perf=str(program)) == found
