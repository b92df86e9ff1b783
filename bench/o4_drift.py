"""How soon drift is found on real pictures, and how often an alarm is false, beside the plain rule and known detectors.

A camera shows steel surfaces of five classes (views of the NEU pictures that the model never trained on, and of trained
ones). One set of views calibrates; others make a quiet stream of 10 000 frames and, for every shift, streams that
change after 200 frames. Views are drawn with replacement from as many as --views say, so that all detectors judge the
same frames. Thresholds of the rivals are the usual ones; ours is set for one false alarm in 10 000 frames.
"""

from __future__ import annotations

import argparse
import io
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.drift.monitor import Monitor
from foveola.drift.observation import Observation, observe, pearson
from foveola.drift.reference import calibrate
from foveola.drift.rule import DescribedRule
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.exchange import Request, Sampling, Turn
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import real

QUIET, LEAD, AFTER, SEEDS = 10_000, 200, 200, 5
NEW_CLASS = "scratches"
Picture = Image.Image
Change = Callable[[Picture, np.random.Generator], Picture]
Detector = Callable[[Observation], bool]


def dirt(picture: Picture, rng: np.random.Generator) -> Picture:
    """Two dark, soft spots at a fixed place: 5 % of the picture."""
    w, h = picture.size
    mask = Image.new("L", picture.size, 0)
    draw = ImageDraw.Draw(mask)
    for x, y, r in ((0.3, 0.35, 0.09), (0.68, 0.6, 0.08)):
        draw.ellipse([(x - r) * w, (y - r) * h, (x + r) * w, (y + r) * h], fill=170)
    return Image.composite(Image.new("L", picture.size, 25), picture, mask.filter(ImageFilter.GaussianBlur(w * 0.02)))


def light(picture: Picture, rng: np.random.Generator) -> Picture:
    """A lamp fails on one side: from full light to 55 %."""
    fall = np.linspace(1, 0.55, picture.width)[None]
    return Image.fromarray((np.asarray(picture, np.float32) * fall).astype(np.uint8))


def focus(picture: Picture, rng: np.random.Generator) -> Picture:
    """Out of focus: a Gaussian of 1 % of the width."""
    return picture.filter(ImageFilter.GaussianBlur(picture.width * 0.01))


def rotation(picture: Picture, rng: np.random.Generator) -> Picture:
    """The camera has turned by 15 degrees."""
    return picture.rotate(15, Image.Resampling.BICUBIC, fillcolor=int(np.asarray(picture).mean()))


def compression(picture: Picture, rng: np.random.Generator) -> Picture:
    """JPEG of quality 10."""
    held = io.BytesIO()
    picture.save(held, "JPEG", quality=10)
    return Image.open(held).convert("L")


def nothing(picture: Picture, rng: np.random.Generator) -> Picture:
    """As it is."""
    return picture


SHIFTS: dict[str, Change] = {
    "lens dirt": dirt, "lighting": light, "focus": focus, "rotation": rotation, "compression": compression,
}  # fmt: skip


class Camera:
    """Views of pictures through the engine."""

    def __init__(self, engine: Engine, records: Sequence[real.Record]) -> None:
        self._engine, self._records = engine, records

    def frames(self, count: int, seed: int, change: Change = nothing) -> list[Observation]:
        """``count`` views, changed."""
        rng = np.random.default_rng(seed)
        return [self._look(self._records[int(rng.integers(len(self._records)))], rng, change) for _ in range(count)]

    def _look(self, record: real.Record, rng: np.random.Generator, change: Change) -> Observation:
        crop, _ = real.view(record, rng)
        picture = change(Image.fromarray(np.ascontiguousarray(crop).astype(np.uint8)), rng)
        held = io.BytesIO()
        picture.save(held, "PNG", compress_level=1)
        turn = Turn("user", "What defect is on this surface?", (held.getvalue(),))
        text, usage = answer_once(self._engine, Request(uuid.uuid4().hex, (turn,), Sampling(max_tokens=12)))
        return observe("line", text[:40], usage.evidence[0])


def ours(reference_frames: list[Observation]) -> Callable[[], Detector]:
    reference = calibrate(reference_frames)

    def start() -> Detector:
        monitor = Monitor(reference)

        def detect(seen: Observation) -> bool:
            raised = bool(monitor.update(seen))
            if raised:
                monitor.acknowledge("line")
            return raised

        return detect

    return start


def described() -> Detector:
    rule = DescribedRule()
    level = "ok"

    def detect(seen: Observation) -> bool:
        nonlocal level
        before, level = level, rule.update(seen.map)
        return level != "ok" and before == "ok"

    return detect


def kolmogorov(scores: np.ndarray, template: np.ndarray, window: int = 50) -> Callable[[], Detector]:
    """Two-sample Kolmogorov–Smirnov on the last ``window`` scores, 0.1 % level."""
    bound = 1.95 * np.sqrt((len(scores) + window) / (len(scores) * window))
    ordered = np.sort(scores)

    def start() -> Detector:
        last: list[float] = []

        def detect(seen: Observation) -> bool:
            last.append(1 - pearson(seen.map, template))
            if len(last) < window:
                return False
            values = np.sort(last[-window:])
            gap = np.abs(np.searchsorted(ordered, values, "right") / len(ordered) - np.arange(1, window + 1) / window)
            if gap.max() > bound:
                last.clear()
                return True
            return False

        return detect

    return start


def page_hinkley(mean: float, template: np.ndarray) -> Callable[[], Detector]:
    """Page–Hinkley with the customary delta 0.005 and lambda 50, scaled to the score."""

    def start() -> Detector:
        sum_, lowest, n, running = 0.0, 0.0, 0, mean

        def detect(seen: Observation) -> bool:
            nonlocal sum_, lowest, n, running
            score = 1 - pearson(seen.map, template)
            n += 1
            running += (score - running) / (n + 100)
            sum_ += score - running - 0.005
            lowest = min(lowest, sum_)
            if sum_ - lowest > 5:
                sum_ = lowest = 0.0
                return True
            return False

        return detect

    return start


def adwin(template: np.ndarray) -> Callable[[], Detector] | None:
    """ADWIN of river (delta 0.002), where it is installed."""
    try:
        from river.drift import ADWIN
    except ImportError:
        return None

    def start() -> Detector:
        detector = ADWIN()

        def detect(seen: Observation) -> bool:
            detector.update(1 - pearson(seen.map, template))
            return bool(detector.drift_detected)

        return detect

    return start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--data", type=Path, metavar="DIR", required=True, help="the folder that holds defects and ocr")
    parser.add_argument("--views", type=int, metavar="N", default=400, help="views per set (default: 400)")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    views = 80 if arguments.quick else arguments.views
    bundle = Bundle.open(arguments.bundle or embedded_bundle())
    records = real.load_records(arguments.data)
    steel = [r for r in records if r.source == "neu_det" and r.name != NEW_CLASS]
    engine = Engine.open(bundle)
    camera = Camera(engine, steel)
    reference_frames, quiet = camera.frames(views, 1), camera.frames(views, 2)
    pools: dict[str, list[Observation]] = {}
    for number, (name, change) in enumerate(SHIFTS.items()):
        tell(f"views: {name}")
        pools[name] = camera.frames(views // 2, 10 + number, change)
    other = Camera(engine, [r for r in records if r.source == "magnetic_tile"])
    pools["swapped camera"] = other.frames(views // 2, 20)
    new = Camera(engine, [r for r in records if r.source == "neu_det" and r.name == NEW_CLASS])
    pools["new class (half of the frames)"] = [*new.frames(views // 4, 21), *quiet[: views // 4]]
    engine.close(0.0)
    template = np.mean([s.map for s in reference_frames], 0)
    scores = np.asarray([1 - pearson(s.map, template) for s in reference_frames])
    detectors: dict[str, Callable[[], Detector]] = {
        "foveola": ours(reference_frames), "described rule": described, "KS": kolmogorov(scores, template),
        "Page–Hinkley": page_hinkley(float(scores.mean()), template),
    }  # fmt: skip
    found = adwin(template)
    if found is not None:
        detectors["ADWIN"] = found
    figures: dict[str, Any] = {"model": describe_model(bundle), "views": views, "detectors": {}}
    for name, start in detectors.items():
        tell(f"streams: {name}")
        false = _alarms(start(), quiet, np.random.default_rng(0), 1000 if arguments.quick else QUIET)
        delays = {shift: [_delay(start, quiet, pool, seed) for seed in range(SEEDS)] for shift, pool in pools.items()}
        figures["detectors"][name] = {
            "false_alarms_per_10k": false * (10 if arguments.quick else 1),
            "delay_frames": {shift: int(np.median(d)) for shift, d in delays.items()},
            "missed_of_5": {shift: sum(x > AFTER for x in d) for shift, d in delays.items()},
        }
    mine = figures["detectors"]["foveola"]
    bars = [Bar("false alarms per 10 000 quiet frames", mine["false_alarms_per_10k"], 1, at_most=True)]
    bars += [
        Bar(f"{shift}: frames until found (median of {SEEDS})", delay, AFTER, at_most=True)
        for shift, delay in mine["delay_frames"].items()
    ]
    return figures, bars


def _alarms(detect: Detector, pool: list[Observation], rng: np.random.Generator, frames: int) -> int:
    return sum(detect(pool[int(rng.integers(len(pool)))]) for _ in range(frames))


def _delay(start: Callable[[], Detector], quiet: list[Observation], pool: list[Observation], seed: int) -> int:
    """Frames from the change to the first alarm; ``AFTER`` + 1 where there was none."""
    rng, detect = np.random.default_rng([seed, 7]), start()
    _alarms(detect, quiet, rng, LEAD)
    for n in range(1, AFTER + 1):
        if detect(pool[int(rng.integers(len(pool)))]):
            return n
    return AFTER + 1


SCRIPT = Script("o4", "drift", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
