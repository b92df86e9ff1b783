"""What watching adds to a request: metrics, accuracy, drift and traces around an answer that costs nothing.

Pairs: the bare answer and the same one watched, turn by turn, so that a busy machine is equally busy for both.
*request* is what an answer waits for, as the server is set up: drift and traces come after the reply has left. *loop*
is what all of it takes of the event loop, whenever that is. The answer has what a real one brings (a picture of 64
visual tokens, evidence, features). Texture is measured on a picture of 640 x 480 px. Seconds on the clock and seconds
of this thread's processor, since others may have the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.bench.evidence import Bar, Script, Tell
from foveola.drift.observation import observe
from foveola.drift.options import DriftOptions
from foveola.drift.reference import calibrate
from foveola.drift.watch import DriftWatch
from foveola.exchange import Answer, Evidence, ImageUse, Piece, Request, Stages, Turn, Usage
from foveola.intake.texture import texture
from foveola.observe import Metrics, Watch, afterwards, observed
from foveola.observe.accuracy import Accuracy
from foveola.observe.traces import Tracing
from foveola.serve.drift import watching

PAIRS, WIDTH, SIDE = 3000, 192, 8
COLLECTOR = "http://127.0.0.1:9/v1/traces"  # nobody is there: what is measured is what an answer waits for


def evidence(rng: np.random.Generator) -> Evidence:
    weights = rng.random(SIDE * SIDE)
    weights /= weights.sum()
    features = tuple(rng.standard_normal(WIDTH).tolist())
    return Evidence((SIDE, SIDE), tuple(weights.tolist()), 0.8, features, (0.1, 0.3, 2.4 + rng.normal(0, 0.1)))


def answering(rng: np.random.Generator) -> Answer:
    """An answer of three pieces that costs nothing, its evidence drawn beforehand."""
    stages = Stages(0.001, 0.002, 0.001, 0.02, 0.01, 0.01, 0.035, 0.045)
    usages = [Usage(80, 64, 2, (ImageUse((224, 224), (224, 224), 64),), stages, (evidence(rng),)) for _ in range(64)]
    asked = 0

    async def answer(request: Request) -> AsyncIterator[Piece]:
        nonlocal asked
        asked += 1
        yield Piece("rolled-in", 1)
        yield Piece(" scale", 1)
        yield Piece("", finish="stop", usage=usages[asked % len(usages)])

    return answer


async def one(answer: Answer, request: Request) -> tuple[float, float]:
    """Seconds of one answer, on the clock and of the processor."""
    began, worked = time.perf_counter(), time.thread_time()
    async for _ in answer(request):
        pass
    return time.perf_counter() - began, time.thread_time() - worked


async def pairs(bare: Answer, watched: Answer, count: int) -> np.ndarray:
    """Differences float64 [count, 2] in milliseconds, on the clock and of the processor."""
    found = []
    for n in range(count):
        request = Request(f"r{n}", (Turn("user", "What is it?", (b"picture",)),), client="line", camera="left")
        order = (bare, watched) if n % 2 else (watched, bare)
        times = {}
        for answer in order:
            times[id(answer)] = await one(answer, request)
            await asyncio.sleep(0)  # what comes afterwards comes now
        found.append(np.subtract(times[id(watched)], times[id(bare)]))
    return 1e3 * np.array(found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, metavar="N", default=PAIRS, help=f"default: {PAIRS}")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 200 if arguments.quick else arguments.pairs
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "line.npz"
        calibrate([observe("left", "rolled-in scale", evidence(rng)) for _ in range(200)]).save(path)
        metrics, tracing = Metrics(model_hash="0" * 64), Tracing.over_http(COLLECTOR, model="0" * 64)
        watch = DriftWatch(DriftOptions(path, Path(name) / "state.json"))
        watches: dict[str, Watch] = {
            "metrics": metrics, "accuracy": Accuracy(), "drift": watching(watch, metrics), "traces": tracing,
        }  # fmt: skip
        bare = answering(rng)
        figures: dict[str, Any] = {"pairs": count, "ms": {}}
        early, late = [metrics, watches["accuracy"]], [watches["drift"], tracing]
        settings = {name: [one] for name, one in watches.items()}
        settings |= {"request": [*early, *map(afterwards, late)], "loop": [*early, *late]}
        for what, chosen in settings.items():
            tell(f"pairs: {what}")
            figures["ms"][what] = told(asyncio.run(pairs(bare, observed(bare, *chosen), count)))
        tracing.close()
    picture = rng.integers(0, 255, (480, 640, 3)).astype(np.uint8)
    figures["ms"]["texture"] = told(
        np.array([timed(lambda: texture(picture, 90_000, 640 * 480)) for _ in range(count)])
    )
    bars = [Bar("watching adds to a request, ms (median)", figures["ms"]["request"]["clock_p50"], 0.5, at_most=True)]
    return figures, bars


def timed(work: Callable[[], object]) -> tuple[float, float]:
    began, worked = time.perf_counter(), time.thread_time()
    work()
    return 1e3 * (time.perf_counter() - began), 1e3 * (time.thread_time() - worked)


def told(found: np.ndarray) -> dict[str, float]:
    return {
        f"{what}_p{q}": round(float(np.percentile(found[:, column], q)), 4)
        for column, what in enumerate(("clock", "processor"))
        for q in (50, 95)
    }


SCRIPT = Script("o1", "overhead", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
