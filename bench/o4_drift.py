"""How soon drift is found on real pictures, and how often an alarm is false, beside the plain rule and known detectors.

A camera shows steel surfaces of five classes (views of the NEU pictures that the model never trained on, and of trained
ones). One set of views calibrates; others make three quiet streams of 10 000 frames and, for every shift, five streams
that change after 200 frames. Views are drawn with replacement from as many as --views say, so that all judge the same
frames. Thresholds of the rivals are the usual ones; ours is set for one false alarm in 10 000 frames.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import io
import itertools
import json
import uuid
from collections import deque
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
from foveola.drift.reference import Reference, calibrate
from foveola.drift.rule import DescribedRule
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.exchange import Request, Sampling, Turn
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import real

QUIET, QUIET_STREAMS, LEAD, AFTER, SEEDS = 10_000, 3, 200, 200, 5
CHARTS = ("looks", "features", "texture", "certified")
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


def ours(reference: Reference, chart: str = "") -> Detector:
    """All charts, or one of them alone."""
    monitor = Monitor(reference)

    def detect(seen: Observation) -> bool:
        raised = [alarm for alarm in monitor.update(seen) if chart in ("", alarm.chart)]
        if raised:
            monitor.acknowledge("line")
        return bool(raised)

    return detect


def described() -> Detector:
    rule = DescribedRule()
    level = "ok"

    def detect(seen: Observation) -> bool:
        nonlocal level
        before, level = level, rule.update(seen.map)
        return level != "ok" and before == "ok"

    return detect


class Scores:
    """Frames as numbers for detectors of one number: by the map alone, or by all that our charts look at; in standard
    deviations of the reference."""

    def __init__(self, frames: list[Observation], reference: Reference, *, everything: bool) -> None:
        template = np.mean([s.map for s in frames], 0)
        self._raw: Callable[[Observation], float] = lambda seen: 1 - pearson(seen.map, template)
        if everything:
            self._raw = lambda seen: reference.judged(seen).strangeness
        raw = np.asarray([self._raw(s) for s in frames])
        self._mean, self._deviation = float(raw.mean()), float(raw.std())
        self.reference = np.sort((raw - self._mean) / self._deviation)

    def __call__(self, seen: Observation) -> float:
        return (self._raw(seen) - self._mean) / self._deviation


def kolmogorov(scores: Scores, window: int = 50) -> Detector:
    """Two-sample Kolmogorov–Smirnov on the last ``window`` scores, 0.1 % level."""
    ordered, last = scores.reference, deque[float](maxlen=window)
    bound = 1.95 * np.sqrt((len(ordered) + window) / (len(ordered) * window))

    def detect(seen: Observation) -> bool:
        last.append(scores(seen))
        if len(last) < window:
            return False
        values = np.sort(last)
        gap = np.abs(np.searchsorted(ordered, values, "right") / len(ordered) - np.arange(1, window + 1) / window)
        if gap.max() <= bound:
            return False
        last.clear()
        return True

    return detect


def page_hinkley(scores: Scores) -> Detector:
    """Page–Hinkley with the customary delta 0.005 and lambda 50."""
    sum_, lowest, n, mean = 0.0, 0.0, 0, 0.0

    def detect(seen: Observation) -> bool:
        nonlocal sum_, lowest, n, mean
        score = scores(seen)
        n += 1
        mean += (score - mean) / (n + len(scores.reference))
        sum_ += score - mean - 0.005
        lowest = min(lowest, sum_)
        if sum_ - lowest <= 50:
            return False
        sum_ = lowest = 0.0
        return True

    return detect


def adwin(scores: Scores) -> Detector:
    """ADWIN of river, with its own delta 0.002."""
    from river.drift import ADWIN

    detector = ADWIN()

    def detect(seen: Observation) -> bool:
        detector.update(scores(seen))
        return bool(detector.drift_detected)

    return detect


def rivals(frames: list[Observation], reference: Reference) -> dict[str, Callable[[], Detector]]:
    """Known detectors, each on the map's score and on the sum of all that ours look at. river may lie in a folder of
    its own, named by PYTHONPATH; without it ADWIN is left out."""
    kinds = {"KS": kolmogorov, "Page–Hinkley": page_hinkley}
    if importlib.util.find_spec("river") is not None:
        kinds["ADWIN"] = adwin
    scores = {what: Scores(frames, reference, everything=what == "all") for what in ("maps", "all")}
    return {
        f"{name}, {what}": functools.partial(kind, scores[what])
        for (name, kind), what in itertools.product(kinds.items(), scores)
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--data", type=Path, metavar="DIR", required=True, help="the folder that holds defects and ocr")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what the engine saw, and take it from there")
    parser.add_argument("--views", type=int, metavar="N", default=400, help="views per set (default: 400)")


REFERENCE, STEADY = "reference", "quiet"


def looked_at(bundle: Bundle, data: Path, views: int, tell: Tell) -> dict[str, list[Observation]]:
    """Every set of views through the engine: that of the reference, the quiet one, and one for each shift."""
    records = real.load_records(data)
    steel = [r for r in records if r.source == "neu_det" and r.name != NEW_CLASS]
    engine = Engine.open(bundle)
    camera = Camera(engine, steel)
    pools = {REFERENCE: camera.frames(views, 1), STEADY: camera.frames(views, 2)}
    for number, (name, change) in enumerate(SHIFTS.items()):
        tell(f"views: {name}")
        pools[name] = camera.frames(views // 2, 10 + number, change)
    other = Camera(engine, [r for r in records if r.source == "magnetic_tile"])
    pools["swapped camera"] = other.frames(views // 2, 20)
    new = Camera(engine, [r for r in records if r.source == "neu_det" and r.name == NEW_CLASS])
    pools["new class (half of the frames)"] = [*new.frames(views // 4, 21), *pools[STEADY][: views // 4]]
    engine.close(0.0)
    return pools


def keep(path: Path, pools: dict[str, list[Observation]], made: dict[str, Any]) -> None:
    """Write what was looked at, so that detectors can be tried again without the engine."""
    rows = {
        name: [[s.label, s.map.tolist(), s.features.tolist(), s.texture.tolist()] for s in pool]
        for name, pool in pools.items()
    }
    path.write_text(json.dumps({"made": made, "views": rows}), encoding="utf-8")


def kept(path: Path, made: dict[str, Any]) -> dict[str, list[Observation]] | None:
    """What ``keep`` wrote for the same model, data and number of views; None where it is something else."""
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if told.get("made") != made:
        return None
    return {
        name: [Observation("line", label, *map(np.asarray, arrays)) for label, *arrays in rows]
        for name, rows in told["views"].items()
    }


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    views = 80 if arguments.quick else arguments.views
    bundle = Bundle.open(arguments.bundle or embedded_bundle())
    made = {"model_hash": bundle.model_hash, "views": views}
    pools = kept(arguments.keep, made) if arguments.keep else None
    if pools is None:
        pools = looked_at(bundle, arguments.data, views, tell)
        if arguments.keep:
            keep(arguments.keep, pools, made)
    reference_frames, quiet = pools.pop(REFERENCE), pools.pop(STEADY)
    reference = calibrate(reference_frames)
    detectors: dict[str, Callable[[], Detector]] = {
        "foveola": functools.partial(ours, reference),
        **{f"foveola, {chart} alone": functools.partial(ours, reference, chart) for chart in CHARTS},
        "described rule": described,
        **rivals(reference_frames, reference),
    }
    frames = 1000 if arguments.quick else QUIET
    figures: dict[str, Any] = {"model": describe_model(bundle), "views": views, "quiet_frames": frames * QUIET_STREAMS}
    figures["detectors"] = {}
    for name, start in detectors.items():
        tell(f"streams: {name}")
        false = sum(_alarms(start(), quiet, np.random.default_rng(n), frames) for n in range(QUIET_STREAMS))
        delays = {shift: [_delay(start, quiet, pool, seed) for seed in range(SEEDS)] for shift, pool in pools.items()}
        figures["detectors"][name] = {
            "false_alarms_per_10k": round(false * 10_000 / (frames * QUIET_STREAMS), 2),
            "delay_frames": {shift: int(np.median(d)) for shift, d in delays.items()},
            "missed_of_5": {shift: sum(x > AFTER for x in d) for shift, d in delays.items()},
        }
    mine = figures["detectors"]["foveola"]
    bars = [Bar("false alarms per 10 000 quiet frames", mine["false_alarms_per_10k"], 1, at_most=True)]
    bars += [
        Bar(f"{shift}: frames until found (median of {SEEDS})", delay, AFTER, at_most=True)
        for shift, delay in mine["delay_frames"].items()
    ]
    bars.append(Bar("streams in which a shift was missed", sum(mine["missed_of_5"].values()), 0, at_most=True))
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
