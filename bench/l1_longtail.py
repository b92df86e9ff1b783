"""Long-tail repair on real pictures: rare defects on a new line, learnt by our repair and by five others.

The embedded checkpoint knows hot-rolled steel (six defects) and magnetic tiles. A second line shows the same kinds of
part under another camera: darker, another tone curve, out of focus, noisy, light from one side (a stated change of real
pictures; no second camera was at hand). Its stream is 85 % two classes; the rarest have 0.3 % each, one picture of 336,
and a crack in magnetic tile is always one of them. A fifth of the common records has no label. Seeds change which are
rare.

Every method passes over the same stream once, with as many pictures per step, and changes the vision tower only. All
judge held-out pictures that the embedded model was never trained on, each as it is and turned by half: accuracy by
class from the likelihood of the model's answers; average precision of boxes at IoU 0.5, once from the boxes that the
model says (as sure as its answer is of the class), once from linear heads on its visual tokens that learn with every
method and are no part of a bundle, and once of whole pictures by name; the distance of the two lines' features; what
is forgotten on the first line.

Runs are kept in --state, one file each, so that an interrupted measurement goes on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from safetensors.torch import load_file, save_file

from foveola.artifact import Checkpoint
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.kept import kept
from foveola.exchange import Refusal
from foveola.learn.distil.boxes import TokenHeads, fit_heads
from foveola.learn.distil.measure import alignment_error, average_precision, marks
from foveola.learn.distil.options import PRESETS, preset
from foveola.learn.distil.pupil import look
from foveola.learn.distil.tail import Example, flipped
from foveola.learn.distil.train import Distiller, Lessons, Told, held_back
from foveola.loop.qwen2_vl import SIZE, Qwen2VL
from foveola.tiny import words
from foveola.tiny.real import NEU, Record, load_records

TILES = ("crack", "uneven")
CLASSES = (*NEU.values(), *TILES)
PAIRS = ((0, 3), (1, 2), (4, 5))  # classes of steel; seed s: the head is PAIRS[s], the tail PAIRS[s + 1]
CRACK, UNEVEN = len(NEU), len(NEU) + 1
HEAD, TAIL, STREAM = 0.85, 0.003, 336
TESTED, FITTED = 12, 40  # pictures of a class: judged at most, and that the heads begin with
UNLABELLED, REMEMBERED = 5, 40
MIRRORS = ((False, False), (True, True))
BOX_QUESTION = "Where is the defect? Give the box."
Floats = NDArray[np.float32]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder with defects and ocr")
    parser.add_argument("--checkpoint", type=Path, default=Path("models/foveola-tiny"), metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--state", type=Path, default=Path("build/l1"), metavar="DIR", help="where runs are kept")


@dataclass(frozen=True)
class Pool:
    """Pictures of both lines: the same, as the first camera and as the second shows them."""

    first: list[Example]
    second: list[Example]

    def of(self, label: int) -> list[int]:
        """The places of a class."""
        return [place for place, one in enumerate(self.first) if one.label == label]


def second_camera(grey: Floats, rng: np.random.Generator) -> Floats:
    """What the other camera makes of a picture, float32 [H, W] in 0..255."""
    height, width = grey.shape
    soft = Image.fromarray(grey.astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.9))
    x = 255 * (np.asarray(soft, np.float32) / 255) ** 2.0 * 0.55
    side = np.linspace(0.6, 1.25, width, dtype=np.float32)[None] * np.ones((height, 1), np.float32)
    x = x * side + 14 + rng.standard_normal(x.shape).astype(np.float32) * 6
    out: Floats = x.clip(0, 255).astype(np.float32)
    return out


def example(record: Record, second: np.random.Generator | None = None) -> Example:
    """A whole picture at the pupil's size; through the second camera where it has a generator for its noise."""
    grey = np.asarray(Image.fromarray(record.grey).resize(SIZE[::-1], Image.Resampling.BICUBIC), np.float32)
    grey = grey.clip(0, 255) if second is None else second_camera(grey.clip(0, 255), second)
    height, width = record.grey.shape
    inside = [(CLASSES.index(name), *corners) for name, *corners in record.boxes if name in CLASSES]
    boxes = np.array(
        [[c, x1 / width, y1 / height, x2 / width, y2 / height] for c, x1, y1, x2, y2 in inside], np.float32
    )
    pixels = np.repeat(grey.astype(np.uint8)[:, :, None], 3, 2)
    return Example(pixels, CLASSES.index(record.name), boxes.reshape(-1, 5), bool(inside))


def pools(data: Path, most: int) -> tuple[Pool, Pool]:
    """Pictures to learn from, and held-out ones, of these at most ``most`` of a class."""
    found: list[Pool] = []
    records = [r for r in load_records(data) if r.source in ("neu_det", "magnetic_tile") and r.name in CLASSES]
    for held in (False, True):
        chosen = [r for r in records if r.held_out is held]
        if held:
            chosen = [one for name in CLASSES for one in [r for r in chosen if r.name == name][:most]]
        rng = np.random.default_rng(11 + held)
        found.append(Pool([example(r) for r in chosen], [example(r, rng) for r in chosen]))
    return found[0], found[1]


def groups(seed: int) -> tuple[list[int], list[int], list[int]]:
    """Head, middle and tail classes of a seed."""
    head, tail, middle = (list(PAIRS[(seed + i) % 3]) for i in range(3))
    return head, [*middle, UNEVEN], [*tail, CRACK]


def lessons(pool: Pool, seed: int, size: int) -> Lessons:
    """The stream of a seed, and what the first line left: eight pictures of each class to guard, and up to forty to
    remember that the stream does not show."""
    rng = np.random.default_rng([seed, 5])
    head, middle, tail = groups(seed)
    counts = dict.fromkeys(tail, max(1, round(TAIL * size)))
    counts |= dict.fromkeys(head, round(HEAD * size / len(head)))
    rest = size - sum(counts.values())
    counts |= {label: rest // len(middle) for label in middle}
    old: list[Example] = []
    guard: list[Example] = []
    stream: list[Example] = []
    for label, count in counts.items():
        places = rng.permutation(pool.of(label)).tolist()
        remembered = [replace(pool.first[p], old=True) for p in places[: max(4, min(20, len(places) // 2))]]
        guarding = remembered[2::3][:8]
        guard += guarding
        new = places[len(remembered) :]
        spare = [replace(pool.first[p], old=True) for p in new[count:][: REMEMBERED + len(guarding) - len(remembered)]]
        old += [one for one in (*remembered, *spare) if all(one is not other for other in guarding)]
        common = label not in tail
        for number in range(count):
            one = pool.second[new[number % len(new)]]
            unknown = common and number % UNLABELLED == UNLABELLED - 1
            stream.append(replace(one, label=-1, boxes=None, located=False) if unknown else one)
    shuffled = [stream[i] for i in rng.permutation(len(stream))]
    learnt, kept = held_back(shuffled)
    return Lessons(learnt, old, guard, kept)


def judged(pupil: Qwen2VL, heads: TokenHeads, test: Pool) -> dict[str, Any]:
    """Everything that is measured of one model."""
    found: dict[str, Any] = {}
    pooled: dict[str, torch.Tensor] = {}
    labels = [one.label for one in test.first] * len(MIRRORS)
    for line, examples in (("first", test.first), ("second", test.second)):
        views = [flipped(one, *mirror) for mirror in MIRRORS for one in examples]
        features, scores = look(pupil, [one.pixels for one in views])
        pooled[line] = features.mean(1)
        seen = marks(scores, labels)
        boxes = heads.found(features, scores)
        truth = [one.boxes if one.boxes is not None else np.zeros((0, 5), np.float32) for one in views]
        found[line] = {
            "accuracy": [known(seen.of(label)) for label in range(len(CLASSES))], "count": list(seen.count),
            "calibration_error": seen.calibration_error,
            "ap_named": [named_precision(scores, labels, label) for label in range(len(CLASSES))],
            "ap50_heads": [known(average_precision(boxes, truth, label)) for label in range(len(CLASSES))],
        }  # fmt: skip
    found["alignment_error"] = alignment_error(pooled["first"], labels, pooled["second"], labels)
    return found


def named_precision(scores: torch.Tensor, labels: Sequence[int], label: int) -> float | None:
    """AP of a class over whole pictures, as sure as the answer: what is left of AP where nothing is located."""
    sure = scores.softmax(-1)[:, label].tolist()
    claims = [np.array([[label, one, 0, 0, 1, 1]], np.float32) for one in sure]
    truth = [np.array([[one, 0, 0, 1, 1]], np.float32) for one in labels]
    return known(average_precision(claims, truth, label))


def known(value: float) -> float | None:
    """``value`` as JSON knows it: None for what does not occur."""
    return None if math.isnan(value) else round(value, 5)


def said_boxes(pupil: Qwen2VL, examples: Sequence[Example]) -> list[float | None]:
    """AP at IoU 0.5 by class of the boxes that the model says, as sure as its answer is of the class."""
    pixels = [one.pixels for one in examples]
    _, scores = look(pupil, pixels)
    sure = scores.softmax(-1)
    told: list[str] = []
    for start in range(0, len(pixels), 32):
        told += pupil.answer(np.stack(pixels[start : start + 32]), BOX_QUESTION, 20)
    boxes = [words.parse_box(text) for text in told]
    found = [
        np.array([[c, sure[i, c], *box] for c in range(len(CLASSES))] if box else [], np.float32).reshape(-1, 6)
        for i, box in enumerate(boxes)
    ]
    truth = [one.boxes if one.boxes is not None else np.zeros((0, 5), np.float32) for one in examples]
    return [known(average_precision(found, truth, label)) for label in range(len(CLASSES))]


def prepared(checkpoint: Path, train: Pool, test: Pool, size: int, state: Path, tell: Tell) -> dict[str, Any]:
    """What serves before any repair, and the heads that every method begins with."""
    tell("before the repair")
    pupil = Qwen2VL.open(Checkpoint.open(checkpoint), CLASSES)
    heads = TokenHeads(pupil.width, len(CLASSES), pupil.grid)
    fitted = [train.first[place] for label in range(len(CLASSES)) for place in train.of(label)[:size]]
    torch.manual_seed(0)
    fit_heads(heads, look(pupil, [one.pixels for one in fitted])[0], fitted)
    save_file(heads.state_dict(), state / "heads.safetensors")
    return judged(pupil, heads, test) | {"ap50_said": said_boxes(pupil, test.second)}


def repaired(
    checkpoint: Path, pictures: Callable[[], tuple[Pool, Pool]], length: int, name: str, seed: int, state: Path
) -> dict[str, Any]:
    """One method on one seed, judged."""
    train, test = pictures()
    taught = lessons(train, seed, length)
    torch.manual_seed(seed)
    pupil = Qwen2VL.open(Checkpoint.open(checkpoint), CLASSES)
    heads = TokenHeads(pupil.width, len(CLASSES), pupil.grid)
    heads.load_state_dict(load_file(state / "heads.safetensors"))
    curve: list[list[float]] = []
    began = time.process_time()

    def told(one: Told) -> None:
        curve.append([one.step, round(one.loss, 4)] + ([round(one.guard, 4)] if one.guard is not None else []))

    distiller = Distiller(pupil, heads, taught, preset(name, seed=seed))
    weights = distiller.run(told)
    distiller.refit_heads(weights)
    seconds = time.process_time() - began
    pupil.tower.load_state_dict(weights)
    pupil.tower.requires_grad_(False)
    found = judged(pupil, heads, test) | {"curve": curve, "cpu_seconds": round(seconds, 1)}
    if name in ("balanced", "fine_tuning"):
        found["ap50_said"] = said_boxes(pupil, test.second)
    return found


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    if not (arguments.data / "defects/manifest.csv").is_file():
        raise Refusal("There is no defects/manifest.csv in the data folder; name it with --data.")
    quick = arguments.quick
    seeds, methods = (1, ["balanced", "fine_tuning"]) if quick else (arguments.seeds, arguments.methods)
    digest = (Checkpoint.open(arguments.checkpoint).model_hash or "unsealed")[:12]
    state = arguments.state / ("quick" if quick else digest)
    state.mkdir(parents=True, exist_ok=True)
    pictures = cache(lambda: pools(arguments.data, 2 if quick else TESTED))  # not opened where all runs are kept
    fitted, length = (4, 48) if quick else (FITTED, STREAM)
    base = kept(state / "before.json", lambda: prepared(arguments.checkpoint, *pictures(), fitted, state, tell))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    for seed in range(seeds):
        for name in methods:
            tell(f"seed {seed}: {name}")
            make = partial(repaired, arguments.checkpoint, pictures, length, name, seed, state)
            runs[name].append(kept(state / f"{name}-{seed}.json", make))
    figures = {
        "checkpoint": digest, "classes": list(CLASSES), "seeds": seeds, "stream": length,
        "tested": sum(base["first"]["count"]) // len(MIRRORS),
        "groups": [dict(zip(("head", "middle", "tail"), groups(seed), strict=True)) for seed in range(seeds)],
        "before": base, "summary": {"before": summed([base] * seeds, base)}, "runs": runs,
    }  # fmt: skip
    figures["summary"] |= {name: summed(found, base) for name, found in runs.items()}
    if {"balanced", "fine_tuning"} <= set(runs):
        figures["tail_ratio_95"] = {what: interval(runs, what) for what in ("ap50_heads", "accuracy")}
    return figures, bars(figures["summary"])


def summed(found: Sequence[dict[str, Any]], base: dict[str, Any]) -> dict[str, Any]:
    """Means over seeds of what the bars are about, with the single seeds beside them."""

    def over(pick: Callable[[dict[str, Any]], list[float]], part: int) -> list[float]:
        return [average([pick(one)[label] for label in groups(seed)[part]]) for seed, one in enumerate(found)]

    figures: dict[str, list[float]] = {}
    for part, group in enumerate(("head", "middle", "tail")):
        figures[f"{group}_accuracy"] = over(lambda one: one["second"]["accuracy"], part)
        figures[f"{group}_ap_named"] = over(lambda one: one["second"]["ap_named"], part)
        figures[f"{group}_ap50_heads"] = over(lambda one: one["second"]["ap50_heads"], part)
        if all("ap50_said" in one for one in found):
            figures[f"{group}_ap50_said"] = over(lambda one: one["ap50_said"], part)
    before = average(base["first"]["accuracy"])
    figures["forgotten_points"] = [100 * (before - average(one["first"]["accuracy"])) for one in found]
    figures["alignment_error"] = [one["alignment_error"] for one in found]
    figures["calibration_error"] = [one["second"]["calibration_error"] for one in found]
    return {name: {"mean": average(values), "seeds": values} for name, values in figures.items()}


def interval(runs: dict[str, list[dict[str, Any]]], what: str) -> list[float | None]:
    """95 % of how many times fine-tuning's tail ours is: pairs of a rare class and a seed, drawn again (a bootstrap;
    the pictures of a class are few, and come again in every seed)."""
    rare = [(seed, label) for seed in range(len(runs["balanced"])) for label in groups(seed)[2]]
    ours, theirs = (
        np.array([runs[name][seed]["second"][what][label] or 0.0 for seed, label in rare])
        for name in ("balanced", "fine_tuning")
    )
    drawn = np.random.default_rng(0).integers(0, len(ours), (4000, len(ours)))
    below = theirs[drawn].mean(1)
    ratios = ours[drawn].mean(1)[below > 0] / below[below > 0]
    return [known(float(q)) for q in np.quantile(ratios, (0.025, 0.975))] if len(ratios) else [None, None]


def average(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def bars(summary: dict[str, Any]) -> list[Bar]:
    """Ours against fine-tuning, and against what served before."""
    if not {"balanced", "fine_tuning"} <= set(summary):
        return []

    def of(name: str, figure: str) -> float:
        value = summary[name].get(figure, {}).get("mean")
        return math.nan if value is None else float(value)

    def ratio(figure: str) -> float:
        ours, theirs = of("balanced", figure), of("fine_tuning", figure)
        return ours / theirs if theirs else (math.inf if ours else math.nan)

    served, tuned, ours = (of(name, "head_accuracy") for name in ("before", "fine_tuning", "balanced"))
    aligned = of("balanced", "alignment_error") / of("before", "alignment_error")
    return [
        Bar("tail AP@0.5 over fine-tuning's, boxes that the model says", ratio("tail_ap50_said"), 3),
        Bar("tail AP@0.5 over fine-tuning's, heads on visual tokens", ratio("tail_ap50_heads"), 3),
        Bar("tail AP over fine-tuning's, whole pictures by name", ratio("tail_ap_named"), 3),
        Bar("tail accuracy over fine-tuning's", ratio("tail_accuracy"), 1),
        Bar("points that head classes lose against what served before", 100 * (served - ours), 1, at_most=True),
        Bar("points that head classes lose against fine-tuning", 100 * (tuned - ours), 1, at_most=True),
        Bar("alignment error over that before the repair", aligned, 0.5, at_most=True),
        Bar("points forgotten on the first line", of("balanced", "forgotten_points"), 1, at_most=True),
    ]


SCRIPT = Script("l1", "longtail", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
