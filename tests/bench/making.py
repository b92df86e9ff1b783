"""Contenders, samples and reports that take no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foveola.bench.measure import Series
from foveola.bench.report import FORMAT, agreement, latencies, row_of, versus
from foveola.bench.sample import STAGES, Block, Item, Sample

MACHINE = {
    "cpu": "Example CPU",
    "vector": "avx2",
    "cores": 2,
    "memory_gib": 16.0,
    "system": "Linux x86_64",
    "busy": 0.01,
}


def sample(latency_s: float, text: str = "pass", tokens: int = 5) -> Sample:
    """Half of the latency is vision, a quarter decoding, the rest waiting."""
    stages = {**dict.fromkeys(STAGES, 0.0), "vision": latency_s / 2, "decode": latency_s / 4}
    return Sample(text, latency_s, latency_s / 2, tokens, stages)


def series(name: str, latencies_s: Sequence[float], *, batch: int = 1, texts: Sequence[str] | None = None) -> Series:
    """One block per request."""
    said = texts or ["pass"] * len(latencies_s)
    blocks = [Block((sample(latency_s, text),), latency_s) for latency_s, text in zip(latencies_s, said, strict=True)]
    return Series(name, batch, blocks)


def items(count: int) -> list[Item]:
    """Items whose pictures nobody decodes."""
    return [Item(f"item {index}", b"picture", f"question {index}") for index in range(count)]


def report() -> dict[str, Any]:
    """A report as ``bench`` makes it, of made-up figures."""
    every = [
        series("foveola", [0.010, 0.012, 0.011, 0.030]),
        series("foveola HTTP", [0.011, 0.013, 0.012, 0.031]),
        series("transformers", [0.10, 0.12, 0.11, 0.30], texts=["pass", "pass", "<b>fail</b>", "pass"]),
    ]
    return {
        "format": FORMAT,
        "date": "2026-11-30T08:00:00+00:00",
        "machine": MACHINE,
        "versions": {"python": "3.11.7", "foveola": "0.1.0"},
        "command": "foveola bench --quick",
        "model": {"name": "example", "model_hash": "ab" * 32, "computes": "cd" * 8, "bytes": 9 * 2**20},
        "options": {"requests": 4, "max_tokens": 32, "concurrency": [1], "cores": 2, "questions": 4},
        "rows": [row_of(one, "Example CPU, 2 cores, avx2", 120 * 2**20).to_json() for one in every],
        "ratios": [one.to_json() for one in versus(every, "foveola")],
        "agreement": [agreement(every, "foveola", "transformers").to_json()],
        "missing": [],
        "notes": ["somebody is not measured: the package example is not installed."],
        "latencies": latencies(every),
    }
