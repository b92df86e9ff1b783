"""What the guards add to one request: allow-list, word filter and memory ceiling around an answerer that costs nothing.

A picture of 200 kB, an answer of 64 tokens with a banned word in it, 100 000 words, a million digests; the same request
with and without guards in turn. Red zones are measured apart, on the embedded model's own buffers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.bench.evidence import Bar, Script, Tell
from foveola.engine.engine import Engine
from foveola.exchange import Answer, Piece, Request, Turn, Usage
from foveola.guard.digests import write_digests
from foveola.guard.guards import Guards
from foveola.guard.options import GuardOptions
from foveola.guard.words import compile_words, write_words
from foveola.serve.embedded import embedded_bundle

ADDED_MS = 2.0
LAST = Piece("", finish="stop", usage=Usage(10, 4, 64))


async def speaking(request: Request) -> AsyncIterator[Piece]:
    for number in range(64):
        yield Piece(" wordzero" if number == 31 else " part", 1)
    yield LAST


async def median_ms(answers: Sequence[Answer], image: bytes, rounds: int) -> list[tuple[float, float]]:
    """Wall time (median) and CPU time (mean) of a request to each of ``answers``, in milliseconds."""
    cpu_s = [0.0 for _ in answers]
    times: list[list[float]] = [[] for _ in answers]
    for number in range(rounds):
        for which, (answer, taken) in enumerate(zip(answers, times, strict=True)):
            request = Request(str(number), (Turn("user", "what?", (image,)),))
            began, cpu_began = time.perf_counter(), time.process_time()
            async for _ in answer(request):
                pass
            taken.append((time.perf_counter() - began) * 1e3)
            cpu_s[which] += time.process_time() - cpu_began
    return [(statistics.median(taken), cpu / rounds * 1e3) for taken, cpu in zip(times, cpu_s, strict=True)]


def guards_of(folder: Path, image: bytes, words: int, digests: int) -> Guards:
    rng = random.Random(1)
    listed = {"wordzero": False} | {
        "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(9)): False for _ in range(words)
    }
    write_words(compile_words(listed), folder / "words")
    rows = np.random.default_rng(1).integers(0, 256, (digests, 32), dtype=np.uint8)
    rows[0] = np.frombuffer(hashlib.sha256(image).digest(), np.uint8)
    write_digests(folder / "digests", rows, name="bench", version=1)
    return Guards.open(
        GuardOptions(
            words=folder / "words", allowlist="enforce", allowlist_file=folder / "digests", memory_mib=1_000_000
        )
    )


def red_zone_us() -> float:
    """CPU time of one look at all red zones of the embedded model's engine, in microseconds."""
    engine = Engine.open(embedded_bundle())
    try:
        zones = engine._scheduler._lanes[-1].runner.zones
        began = time.process_time()
        for _ in range(2000):
            zones.check()
        return (time.process_time() - began) / 2000 * 1e6
    finally:
        engine.close(0.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", default=400)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    image = random.Random(2).randbytes(200_000)
    words, digests, rounds = (1000, 1000, 40) if arguments.quick else (100_000, 1_000_000, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        guards = guards_of(Path(folder), image, words, digests)
        tell("guards are loaded")
        (plain, plain_cpu), (guarded, guarded_cpu) = asyncio.run(
            median_ms([speaking, guards.around(speaking)], image, rounds)
        )
    zone_us = red_zone_us()
    figures = {
        "words": words,
        "digests": digests,
        "rounds": rounds,
        "plain_ms": round(plain, 4),
        "guarded_ms": round(guarded, 4),
        "added_cpu_ms": round(guarded_cpu - plain_cpu, 4),
        "red_zones_us_per_step": round(zone_us, 1),
    }
    return figures, [Bar("added to a request, ms p50", guarded - plain, ADDED_MS, at_most=True)]


SCRIPT = Script("g", "overhead", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).resolve().parent))
