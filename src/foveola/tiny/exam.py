"""The examination: questions about pictures that training never saw, with their right answers.

Generated pictures use fonts, cut-outs and seeds of their own; real ones come from the held-out split. An answerer
takes the picture's bytes as a client would send them, so that decoding and resizing are part of what is judged.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from foveola.tiny import labels, real, scenes, turns, words
from foveola.tiny.real import Record
from foveola.tiny.scenes import Grey, Scene
from foveola.tiny.words import Lang, Split

SEED = 20_261_130
GENERATED_SIZES = ((224, 224), (160, 160), (200, 280), (320, 240), (480, 640))
LABEL_SIZES = ((224, 224), (112, 224), (120, 320), (64, 256), (160, 240), (240, 320))


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the examination. ``kind`` groups results; ``label`` is the class within it."""

    kind: str
    task: str
    label: str
    lang: Lang
    wording: Split
    image: bytes
    text: str
    expected: str


def _png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()


def box_iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2)."""
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return w * h / union if union > 0 else 0.0


def is_right(question: Question, answer: str) -> bool:
    """Exact equality after trimming; for boxes an IoU of at least 0.5."""
    if question.task != "box":
        return answer.strip() == question.expected
    wanted, got = words.parse_box(question.expected), words.parse_box(answer)
    return wanted is not None and got is not None and box_iou(wanted, got) >= 0.5


def _ask(kind: str, label: str, task: str, scene: Scene, image: bytes, rng: random.Random) -> Iterator[Question]:
    """The same question in both languages and in trained and untrained wordings."""
    state = rng.getstate()
    for lang in ("en", "zh"):
        for wording in ("train", "held_out"):
            rng.setstate(state)  # what is asked for (which defect, which character) stays the same
            text, expected = turns.one_turn(task, scene, lang, rng, wording)
            yield Question(kind, task, label, lang, wording, image, text, expected)
    rng.random()


def _real_questions(records: Sequence[Record], rng: random.Random) -> Iterator[Question]:
    kinds = {"neu_det": "steel", "magnetic_tile": "magnetic", "bsdata_ballscrew": "ball screw", "crackforest": "road"}
    for r in records:
        if not r.held_out:
            continue
        raw = Path(r.path).read_bytes()
        if r.source in kinds:
            _, seen = real.view(r, np.random.default_rng(0), whole=True)
            label = r.name or words.CLEAN
            yield from _ask(kinds[r.source] + ": defect", label, "defect", seen, raw, rng)
            yield from _ask("real: verdict", label, "verdict", seen, raw, rng)
            if r.source in ("magnetic_tile", "bsdata_ballscrew") and r.complete and len(seen.defects) == 1:
                yield from _ask("real: where", label, "where", seen, raw, rng)
        elif r.source in ("meter_digit", "meter_needle"):
            seen = Scene(np.zeros((0, 0, 3), np.uint8), "meter", reading=r.reading)
            yield from _ask("meter: " + r.source[6:], r.reading, "reading", seen, raw, rng)


def _pcb_questions(records: Sequence[Record], rng: random.Random) -> Iterator[Question]:
    """Crops that hold one defect, or none."""
    for i, r in enumerate(r for r in records if r.held_out and r.source == "deeppcb"):
        for n in range(3):
            crop, seen = real.view(r, np.random.default_rng([SEED, i, n]))
            if len(seen.defects) > 1:
                continue
            image = _png(np.repeat(crop.astype(np.uint8)[:, :, None], 3, 2))
            label = seen.names[0] if seen.names else words.CLEAN
            yield from _ask("board: defect", label, "defect", seen, image, rng)


def held_out_cutouts(records: Sequence[Record]) -> list[tuple[str, Grey]]:
    """Cut-outs of the held-out pictures only."""
    return real.cutouts([replace(r, held_out=not r.held_out) for r in records])


def _scene_questions(records: Sequence[Record], count: int, rng: random.Random) -> Iterator[Question]:
    cuts = held_out_cutouts(records)
    for i in range(count):
        draw = np.random.default_rng([SEED, 1, i])
        height, width = GENERATED_SIZES[i % len(GENERATED_SIZES)]
        one = scenes.scene(draw, height, width, cutouts=cuts, counts=(0, 1, 0, 0, 0))
        if len(one.defects) == 1:
            image = _png(one.pixels)
            for task, kind in (("where", "cell"), ("box", "box"), ("defect", "name"), ("verdict", "verdict")):
                yield from _ask("generated: " + kind, one.names[0], task, one, image, rng)
        clean = scenes.scene(draw, height, width, counts=(1, 0, 0, 0, 0))
        yield from _ask("clean: defect", words.CLEAN, "defect", clean, _png(clean.pixels), rng)
        yield from _ask("clean: verdict", "pass", "verdict", clean, _png(clean.pixels), rng)
        many = scenes.scene(draw, height, width, cutouts=cuts, counts=(0.1, 0.3, 0.25, 0.2, 0.15))
        yield from _ask("generated: count", str(len(many.defects)), "count", many, _png(many.pixels), rng)


def _label_questions(count: int, rng: random.Random) -> Iterator[Question]:
    for i in range(count):
        draw = np.random.default_rng([SEED, 2, i])
        height, width = LABEL_SIZES[i % len(LABEL_SIZES)]
        one = labels.label(draw, height, width, held_out=True, lines=False)
        yield from _ask("lot code", f"{len(one.code)} characters", "code", one, _png(one.pixels), rng)
        if i % 3 == 0:
            two = labels.label(draw, 160, 240, held_out=True, lines=True)
            yield from _ask("lot code on a label with a date", "code", "code", two, _png(two.pixels), rng)
            yield from _ask("expiry date", "date", "expiry", two, _png(two.pixels), rng)


def questions(data: Path, *, generated: int = 200, seed: int = 0) -> list[Question]:
    """The whole examination; ``generated`` scenes and as many labels."""
    records = real.load_records(data)
    rng = random.Random(SEED + seed)
    return [
        *_real_questions(records, rng),
        *_pcb_questions(records, rng),
        *_scene_questions(records, generated, rng),
        *_label_questions(generated, rng),
    ]


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if count == 0:
        return 0.0, 1.0
    z, p = 1.959964, right / count
    centre = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z * ((p * (1 - p) + z * z / (4 * count)) / count) ** 0.5 / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Score:
    """How many of ``count`` questions were answered rightly."""

    right: int
    count: int

    @property
    def share(self) -> float:
        """0..1."""
        return self.right / self.count if self.count else 0.0

    def to_json(self) -> dict[str, float | int | list[float]]:
        """Share, interval and counts."""
        low, high = wilson(self.right, self.count)
        return {
            "share": round(self.share, 4),
            "interval": [round(low, 4), round(high, 4)],
            "right": self.right,
            "count": self.count,
        }


Marked = list[tuple[Question, bool]]


def mark(paper: Sequence[Question], answer: Callable[[Question], str]) -> Marked:
    """Asks every question."""
    return [(q, is_right(q, answer(q))) for q in paper]


def tally(marked: Marked, key: Callable[[Question], str]) -> dict[str, Score]:
    """Scores per ``key``, in order of appearance."""
    out: dict[str, list[int]] = {}
    for q, right in marked:
        pair = out.setdefault(key(q), [0, 0])
        pair[0] += right
        pair[1] += 1
    return {k: Score(r, n) for k, (r, n) in out.items()}
