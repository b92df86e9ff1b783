from __future__ import annotations

import shutil
import threading

import pytest

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
