"""A stream with reuse against the same stream without: frames per second, answers that differ, features that differ.

Static: pictures of parts, each in front of a still camera for some time, with the noise of a sensor, then the next one.
The task loss is the difference in accuracy (the names of the defects are known); how many answers differ
from those without reuse, and how many the noise alone changes, is told beside it. Turning: a simulated vehicle turns at
up to 1.2 rad/s; errors are told per angular velocity, the worst one counts. Memory: 1 to 12 vehicles, parked and
in motion.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.bench.work import steel_items
from foveola.engine.options import EngineOptions
from foveola.intake import decode
from foveola.intake.image import Picture
from foveola.serve.embedded import embedded_bundle
from foveola.stream.bandwidth import measure, read_bandwidth
from foveola.stream.fleet import Drive, frames, run_fleet
from foveola.stream.motion import Camera
from foveola.stream.options import StreamOptions
from foveola.stream.sources import Frame
from foveola.stream.watching import Seen, Watcher
from foveola.tiny import scenes

QUESTION = "What defect is on this surface?"
TURNS = (0.05, 0.2, 0.5, 0.8, 1.2)
FASTER, LOSS = 4.0, 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the project's data; default: drawn parts")
    parser.add_argument("--parts", type=int, metavar="N", default=40, help="pictures in the static stream")
    parser.add_argument("--turn-frames", type=int, metavar="N", default=12, help="frames per angular velocity")
    parser.add_argument("--fleet-frames", type=int, metavar="N", default=8, help="frames per vehicle")
    parser.add_argument("--stay", type=int, metavar="N", default=15, help="frames that each is shown")


def parts_of(count: int, data: Path | None) -> tuple[list[Picture], list[str]]:
    """Real steel that was not trained on, or drawn parts with one defect each, and the defect's name."""
    if data is not None:
        items = steel_items(data)[:count]
        return [decode(image) for image, _ in items], [name for _, name in items]
    pictures, truth = [], []
    for index in range(count):
        one = scenes.scene(np.random.default_rng([77, index]), 224, 224, counts=(0, 1, 0, 0, 0))
        pictures.append(Picture(np.ascontiguousarray(one.pixels), (224, 224), "PNG"))
        truth.append(one.names[0])
    return pictures, truth


def accuracy(seen: Sequence[Seen], truth: Sequence[str], stay: int) -> float:
    """Percent of frames whose answer names the defect that is there."""
    right = [truth[at // stay].lower() in one.text.lower() for at, one in enumerate(seen)]
    return round(100 * sum(right) / len(right), 3)


def film_of(pictures: Sequence[Picture], stay: int, noise: float = 3.0) -> list[Frame]:
    """Each picture ``stay`` times, with noise of its own every time."""
    grain = np.random.default_rng(5)
    film = []
    for picture in pictures:
        for _ in range(stay):
            noisy = picture.rgb + grain.normal(0, noise, picture.rgb.shape)
            rgb = np.clip(noisy, 0, 255).astype(np.uint8)
            film.append(Frame(len(film), len(film) / 10, Picture(rgb, picture.original, "VIDEO")))
    return film


def watched(watcher: Watcher, film: Sequence[Frame], options: StreamOptions) -> list[Seen]:
    return list(watcher.watch(film, watcher.eye(options), QUESTION, max_tokens=16))


def spent(seen: Sequence[Seen]) -> float:
    return sum(one.look_s + one.ask_s for one in seen)


def static(watcher: Watcher, film: Sequence[Frame], stay: int, truth: Sequence[str]) -> dict[str, Any]:
    """Without reuse, with, in turn by halves, so that a busy machine disturbs both alike."""
    half = len(film) // stay // 2 * stay
    plain, reused = [], []
    for seed, part in enumerate((film[:half], film[half:]), 1):
        plain += watched(watcher, part, StreamOptions(reuse=False))
        reused += watched(watcher, part, StreamOptions(seed=seed))
    differ = sum(one.text != other.text for one, other in zip(plain, reused, strict=True))
    # The noise alone changes some answers from frame to frame: what reuse adds is judged against that.
    flicker = [plain[at].text != plain[at - 1].text for at in range(1, len(plain)) if at % stay]
    held = [reused[at].text != reused[at - 1].text for at in range(1, len(reused)) if at % stay]
    errors = [one.error for one in reused if one.error is not None]
    return {
        "frames": len(film),
        "plain_frames_per_s": round(len(plain) / spent(plain), 2),
        "reuse_frames_per_s": round(len(reused) / spent(reused), 2),
        "faster": round(spent(plain) / spent(reused), 3),
        "accuracy_plain_percent": accuracy(plain, truth, stay),
        "accuracy_reuse_percent": accuracy(reused, truth, stay),
        "answers_that_differ_percent": round(100 * differ / len(film), 3),
        "answers_that_flicker_without_reuse_percent": round(100 * sum(flicker) / max(1, len(flicker)), 3),
        "answers_that_flicker_with_reuse_percent": round(100 * sum(held) / max(1, len(held)), 3),
        "audits": len(errors),
        "audit_error_mean": round(float(np.mean(errors)), 6) if errors else None,
    }


def turning(watcher: Watcher, scene: np.ndarray[Any, Any], camera: Camera, count: int) -> list[dict[str, Any]]:
    """Per angular velocity: partial reuse against none, on the same frames."""
    rows = []
    for omega in TURNS:
        drive = Drive(omega, period_s=1e6, seed=3)
        film = list(frames(scene, camera, drive, count, 10))
        runs = {
            name: run_fleet(watcher, [film], [drive], camera, options, QUESTION).seen[0]
            for name, options in {
                "plain": StreamOptions(reuse=False),
                "exact": StreamOptions(),
                "partial": StreamOptions(partial=True, epsilon=8.0, audit_share=0.0),
            }.items()
        }
        row: dict[str, Any] = {
            "omega": omega,
            "window": runs["exact"][-1].window,
            "phi_px": round(runs["exact"][-1].phi, 2),
        }
        for name in ("exact", "partial"):
            differ = sum(one.text != other.text for one, other in zip(runs["plain"], runs[name], strict=True))
            modes: dict[str, int] = defaultdict(int)
            for one in runs[name]:
                modes[one.mode] += 1
            row[name] = {
                "faster": round(spent(runs["plain"]) / spent(runs[name]), 3),
                "answers_that_differ_percent": round(100 * differ / count, 2),
                "cells_reused": round(sum(s.reused for s in runs[name]) / sum(s.cells for s in runs[name]), 3),
                "modes": dict(modes),
            }
        rows.append(row)
    return rows


def memory(watcher: Watcher, scene: np.ndarray[Any, Any], camera: Camera, fleets: Sequence[int], count: int) -> Any:
    """Bandwidth and cache misses for fleets, parked and in motion."""
    rows = []
    for vehicles in fleets:
        for name, omega in (("parked", 0.0), ("in motion", 0.9)):
            drives = [Drive(omega, seed=number) for number in range(vehicles)]
            films = [list(frames(scene, camera, drive, count, 10)) for drive in drives]
            runs = []

            def load(films: Any = films, drives: Any = drives, runs: Any = runs) -> None:
                runs.append(run_fleet(watcher, films, drives, camera, StreamOptions(), QUESTION))

            found = measure(load, probe_s=0.3)
            rows.append(
                {
                    "vehicles": vehicles,
                    "state": name,
                    "frames_per_s": round(runs[-1].frames_s, 2),
                    "taken_gb_s_at_least": round(found.taken_bytes_s / 1e9, 2),
                    "left_gb_s": round(found.beside_bytes_s / 1e9, 2),
                    "cache_miss_rate": found.miss_rate,
                    "why_no_miss_rate": found.why or None,
                }
            )
    return rows


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    parts, stay = (3, 4) if arguments.quick else (arguments.parts, arguments.stay)
    bundle = Bundle.open(arguments.bundle or embedded_bundle())
    pictures, truth = parts_of(parts, arguments.data)
    watcher = Watcher(bundle, EngineOptions())
    try:
        tell(f"{len(pictures)} parts, {stay} frames each, without reuse and with")
        still = static(watcher, film_of(pictures, stay), stay, truth)
        wide = [Image.fromarray(picture.rgb).resize((224, 224)) for picture in pictures[:5]]
        scene = np.concatenate([np.asarray(one) for one in wide], axis=1)
        camera = Camera.of_angle(60, 224, 168)
        tell("a vehicle that turns")
        turns = turning(watcher, scene, camera, 3 if arguments.quick else arguments.turn_frames)
        fleets = (1,) if arguments.quick else (1, 4, 12)
        tell("vehicles at once, and the memory that they take")
        rows = memory(watcher, scene, camera, fleets, 2 if arguments.quick else arguments.fleet_frames)
    finally:
        watcher.close()
    worst = max(turns, key=lambda row: row["exact"]["answers_that_differ_percent"])
    figures = {
        "model": describe_model(bundle),
        "static": still,
        "turning": turns,
        "worst_turn": {"omega": worst["omega"], **worst["exact"]},
        "memory": rows,
        "read_gb_s_alone": round(read_bandwidth(0.3) / 1e9, 2),
    }
    loss = still["accuracy_plain_percent"] - still["accuracy_reuse_percent"]
    return figures, [
        Bar("static scene: frames/s with reuse, times as many", still["faster"], FASTER),
        Bar("static scene: accuracy lost by reuse, points", round(loss, 3), LOSS, at_most=True),
    ]


SCRIPT = Script("e3", "stream", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
