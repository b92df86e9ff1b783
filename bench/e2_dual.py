"""Two engines against one: a small model answers first, a large one where the small is unsure.

Both are the embedded model; the small one looks at fewer pixels (112 x 112 at most): quicker and less accurate.
Confidence is learnt on two thirds of the pictures and judged on the rest: does the risk stay below its bound, how does
the selective-risk curve compare with a random choice, what do accuracy and time come to. CPU time is told too, since
others on the machine change it less. Then both serve as one, and the answers, routes and times are those of real
requests; at last the large one is dead, and then the small one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Bundle, write_bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.bench.stats import median, percentile
from foveola.bench.work import encoded, steel_items
from foveola.engine.dual import Dual
from foveola.engine.dual_confidence import area_under_risk, fit, risk_curve
from foveola.engine.engine import Engine
from foveola.engine.options import EngineOptions
from foveola.exchange import Piece, Request, Sampling, Turn, Unavailable
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import scenes

QUESTION = "What defect is on this surface?"
TARGET, DELTA = 0.05, 0.1
LEARN = 2 / 3  # of the pictures; the rest judges
END_TO_END_MS = 800.0
PLAIN = EngineOptions(feature_cache_mib=0, prefix_cache_mib=0)  # the same pictures come several times


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the project's data; default: drawn parts")
    parser.add_argument("--pictures", type=int, metavar="N", default=400)
    parser.add_argument("--small-px", type=int, metavar="N", default=112, help="side of what the small model sees")


def smaller(bundle: Bundle, out: Path, side: int) -> Bundle:
    """The same bundle for pictures of at most ``side`` x ``side`` pixels."""

    def files(folder: Path) -> None:
        for name in bundle.files:
            shutil.copyfile(bundle.file(name), folder / name)
        model = json.loads((folder / "model.json").read_text())
        model["vision"]["max_pixels"] = side * side
        (folder / "model.json").write_text(json.dumps(model))

    return write_bundle(out, name=f"{bundle.name}-{side}", files=files, lineage=bundle.lineage)


def pictures(count: int, data: Path | None) -> list[tuple[bytes, str]]:
    """Real steel that was not trained on, or drawn parts with one defect each; encoded, with the defect's name."""
    if data is not None:
        return steel_items(data)[:count]
    made = []
    for index in range(count):
        one = scenes.scene(np.random.default_rng([91, index]), 336, 336, counts=(0, 1, 0, 0, 0))
        made.append((encoded(one.pixels, "JPEG"), one.names[0]))
    return made


def request_of(image: bytes, number: int) -> Request:
    return Request(str(number), (Turn("user", QUESTION, (image,)),), Sampling(max_tokens=16))


def judged(engine: Engine, items: Sequence[tuple[bytes, str]]) -> dict[str, Any]:
    """Score, verdict and seconds of every answer of one engine."""
    scores, right, seconds, cpu = [], [], [], []
    for number, (image, truth) in enumerate(items):
        began, worked = time.perf_counter(), time.process_time()
        pieces = list(engine.pieces(request_of(image, number)))
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
        scores.append(sum(piece.logprob for piece in pieces))
        right.append(truth.lower() in "".join(piece.text for piece in pieces).lower())
    return {"scores": scores, "right": right, "seconds": seconds, "cpu": cpu}


async def together(dual: Dual, items: Sequence[tuple[bytes, str]]) -> dict[str, Any]:
    """Both as one, request after request."""
    right, seconds, cpu, routes = [], [], [], Counter[str]()
    for number, (image, truth) in enumerate(items):
        began, worked = time.perf_counter(), time.process_time()
        pieces = [piece async for piece in dual(request_of(image, number))]
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
        right.append(truth.lower() in "".join(piece.text for piece in pieces).lower())
        usage = pieces[-1].usage
        assert usage is not None and usage.route is not None
        routes[usage.route.reason] += 1
    return {"right": right, "seconds": seconds, "cpu": cpu, "routes": dict(routes)}


async def dead(request: Request) -> AsyncIterator[Piece]:
    """An engine that is no more."""
    raise Unavailable("The engine is dead.")
    yield


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 80 if arguments.quick else arguments.pictures
    bundle = Bundle.open(arguments.bundle or embedded_bundle())
    items = pictures(count, arguments.data)
    count = len(items)
    with tempfile.TemporaryDirectory() as folder:
        small_bundle = smaller(bundle, Path(folder) / "small", arguments.small_px)
        small, large = Engine.open(small_bundle, PLAIN), Engine.open(bundle, PLAIN)
        try:
            tell(f"asking both about {count} pictures")
            alone = {"small": judged(small, items), "large": judged(large, items)}
            figures, bars = judge(alone, items, small, large, small_bundle, bundle, tell)
        finally:
            small.close(0)
            large.close(0)
    return {"model": describe_model(bundle), "small_px": arguments.small_px, "pictures": count, **figures}, bars


def judge(
    alone: dict[str, Any],
    items: Sequence[tuple[bytes, str]],
    small: Engine,
    large: Engine,
    small_bundle: Bundle,
    bundle: Bundle,
    tell: Tell,
) -> tuple[dict[str, Any], list[Bar]]:
    half = int(len(items) * LEARN)
    scores, right = alone["small"]["scores"], alone["small"]["right"]
    confidence = fit(scores[:half], right[:half], model_hash=small_bundle.model_hash, target_risk=TARGET, delta=DELTA)
    told = [confidence(score) for score in scores[half:]]
    curve = risk_curve(told, right[half:])
    taken = [ok for one, ok in zip(told, right[half:], strict=True) if one >= confidence.threshold]
    risk = taken.count(False) / len(taken) if taken else 0.0
    tell("both as one, then with one of them dead")
    parts = [(small_bundle.name, small, small_bundle.model_hash), (bundle.name, large, bundle.model_hash)]
    dead_large, dead_small = ("large", dead, ""), ("small", dead, "")
    runs = {
        name: asyncio.run(together(Dual(*pair, confidence, confidence.threshold), asked))
        for name, pair, asked in (
            ("both", parts, items[half:]),
            ("large dead", (parts[0], dead_large), items[half : half + 20]),
            ("small dead", (dead_small, parts[1]), items[half : half + 20]),
        )
    }
    whole = area_under_risk(curve)
    by_chance = 1 - sum(right[half:]) / len(told)
    figures = {
        "target_risk": TARGET,
        "threshold": round(confidence.threshold, 4),
        "taken_percent": round(100 * len(taken) / len(told), 2),
        "risk_of_taken_percent": round(100 * risk, 2),
        "area_under_risk": round(whole, 4),
        "area_of_random_choice": round(by_chance, 4),
        "area_share": round(whole / max(1e-9, by_chance), 4),
        "curve": [[round(point.coverage, 3), round(point.risk, 4)] for point in curve],
        **compared({name: {key: values[half:] for key, values in one.items()} for name, one in alone.items()}, runs),
    }
    answered = len(runs["large dead"]["right"]) + len(runs["small dead"]["right"])
    lost = figures["accuracy_percent"]["large"] - figures["accuracy_percent"]["both"]
    return figures, [
        Bar("risk of answers taken from the small engine, percent", 100 * risk, 100 * TARGET, at_most=True),
        Bar("selective risk against a random choice, share", whole / by_chance, 0.8, at_most=True),
        Bar("accuracy lost against the large engine alone, points", round(lost, 2), 1.0, at_most=True),
        Bar("CPU time of both against the large engine alone", figures["cpu_share"], 1.0, at_most=True),
        Bar("both end to end, ms at p95", figures["both_p95_ms"], END_TO_END_MS, at_most=True),
        Bar("answers with one engine dead, of 40", answered, min(40, 2 * min(20, len(items) - half))),
    ]


def compared(alone: dict[str, Any], runs: dict[str, Any]) -> dict[str, Any]:
    """Accuracy, latency, work and routes of each engine alone and of both as one, on the same questions."""

    def percent(verdicts: Sequence[bool]) -> float:
        return round(100 * sum(verdicts) / len(verdicts), 2)

    each = {**alone, "both": runs["both"]}
    return {
        "accuracy_percent": {
            **{name: percent(one["right"]) for name, one in each.items()},
            **{name.replace(" ", "_"): percent(runs[name]["right"]) for name in ("large dead", "small dead")},
        },
        "latency_ms_p50": {name: round(1000 * median(one["seconds"]), 2) for name, one in each.items()},
        "cpu_ms_mean": {name: round(1000 * float(np.mean(one["cpu"])), 2) for name, one in each.items()},
        "cpu_share": round(float(np.sum(runs["both"]["cpu"]) / np.sum(alone["large"]["cpu"])), 3),
        "both_p95_ms": round(1000 * percentile(runs["both"]["seconds"], 95), 2),
        "routes": {name: one["routes"] for name, one in runs.items()},
    }


SCRIPT = Script("e2", "dual", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
