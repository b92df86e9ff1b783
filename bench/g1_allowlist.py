"""The allow-list with ten million digests: build, change, open, look-ups; and live registrations in SQLite."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.bench.evidence import Bar, Script, Tell
from foveola.guard.digests import SIZE, open_digests, sort_digests, write_digests
from foveola.guard.live import LiveDigests

P99_US = 50.0


def percentiles_us(known: Callable[[bytes], bool], digests: Sequence[bytes]) -> dict[str, float]:
    times = np.empty(len(digests))
    for number, digest in enumerate(digests):
        began = time.perf_counter_ns()
        known(digest)
        times[number] = time.perf_counter_ns() - began
    return {
        name: round(float(np.percentile(times, q)) / 1e3, 2) for name, q in (("p50", 50), ("p99", 99), ("p999", 99.9))
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--digests", type=int, metavar="N", default=10_000_000)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 100_000 if arguments.quick else arguments.digests
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 256, (count, SIZE), dtype=np.uint8)
    figures: dict[str, Any] = {"digests": count}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began, cpu = time.perf_counter(), time.process_time()
        result = work()
        figures[f"{name}_s"] = round(time.perf_counter() - began, 3)
        figures[f"{name}_cpu_s"] = round(time.process_time() - cpu, 3)
        tell(f"{name}: {figures[f'{name}_s']} s")
        return result

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all"
        timed("build", lambda: write_digests(path, rows, name="bench", version=1))
        listing = timed("open", lambda: open_digests(path))
        hits = [rows[number].tobytes() for number in rng.integers(0, count, 25_000)]
        misses = [row.tobytes() for row in rng.integers(0, 256, (25_000, SIZE), dtype=np.uint8)]
        if not all(digest in listing for digest in hits) or any(digest in listing for digest in misses):
            raise AssertionError("the list is wrong")
        figures["hit_us"] = percentiles_us(listing.__contains__, hits)
        figures["miss_us"] = percentiles_us(listing.__contains__, misses)
        more = rng.integers(0, 256, (1000, SIZE), dtype=np.uint8)
        timed(
            "add_1000",
            lambda: write_digests(path, sort_digests(np.concatenate([listing.rows(), more])), name="bench", version=2),
        )
        live = LiveDigests(Path(folder) / "live.db", lambda: 0.0)
        timed("register_1000", lambda: live.register([row.tobytes() for row in more], expires=1.0, gateway="bench"))
        figures["live_us"] = percentiles_us(live.__contains__, [row.tobytes() for row in more] + misses[:4000])
        live.close()
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    worst = max(figures["hit_us"]["p99"], figures["miss_us"]["p99"])
    return figures, [Bar("look-up p99, µs", worst, P99_US, at_most=True)]


SCRIPT = Script("g1", "allowlist", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).resolve().parent))
