"""Two bundles, one process: the same questions to both in turn, on one thread, by the clock and in processor time.

Processor time is what remains comparable where other programs want the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.bench.contender import Setup
from foveola.bench.evidence import Tell
from foveola.bench.local import LocalEngine
from foveola.bench.sample import Item
from foveola.bench.stats import paired_ratio


def side_by_side(bundles: Sequence[Bundle], items: Sequence[Item], tell: Tell) -> dict[str, Any]:
    """Times of the two ``bundles`` in milliseconds, and how many times as long the first takes as the second, with
    paired intervals; the order changes from one question to the next."""
    engines = [LocalEngine(Setup(bundle.path, 1, 16)) for bundle in bundles]
    try:
        for engine in engines:
            engine.ask(items[0])
        wall: list[list[float]] = [[], []]
        cpu: list[list[float]] = [[], []]
        stages: list[dict[str, list[float]]] = [{}, {}]
        for number, item in enumerate(items):
            for index in (0, 1) if number % 2 else (1, 0):
                before = time.process_time()
                sample = engines[index].ask(item)
                cpu[index].append(time.process_time() - before)
                wall[index].append(sample.latency_s)
                for stage, seconds in sample.stages_s.items():
                    stages[index].setdefault(stage, []).append(seconds)
            if number % 20 == 19:
                tell(f"question {number + 1} of {len(items)}")
    finally:
        for engine in engines:
            engine.close()
    return {
        "threads": 1,
        "questions": len(items),
        "ratio": paired_ratio(*wall).to_json(),
        "cpu_ratio": paired_ratio(*cpu).to_json(),
        "median_ms": [round(float(np.median(one)) * 1000, 2) for one in wall],
        "median_cpu_ms": [round(float(np.median(one)) * 1000, 2) for one in cpu],
        "p95_ms": [round(float(np.percentile(one, 95)) * 1000, 2) for one in wall],
        "stage_ratios": {
            stage: round(float(np.median(times) / max(1e-9, np.median(stages[1][stage]))), 3)
            for stage, times in stages[0].items()
        },
        "bytes": [sum(file.bytes for file in bundle.files.values()) for bundle in bundles],
    }
