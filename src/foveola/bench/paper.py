"""The examination paper of the embedded model as work for the benchmark. Needs the workshop door."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from foveola.bench.sample import Item
from foveola.exchange import Invalid
from foveola.tiny import exam
from foveola.tiny.exam import Question


def read_paper(data: Path, *, generated: int) -> list[Question]:
    """All questions about held-out pictures in ``data`` and about ``generated`` scenes and labels.

    Raises ``Invalid`` where ``data`` lacks its manifests or the fonts are not installed.
    """
    for manifest in ("defects/manifest.csv", "ocr/manifest.csv"):
        if not (data / manifest).is_file():
            raise Invalid(f"{data.name} lacks {manifest}; name the project's data folder.", field="data")
    try:
        return exam.questions(data, generated=generated)
    except FileNotFoundError as missing:
        raise Invalid(str(missing), field="data") from None


def draw(paper: Sequence[Question], count: int, *, seed: int = 0) -> list[Question]:
    """At most ``count`` questions, as many of every kind as the paper has, in a mixed order; the same for a seed."""
    kinds: dict[str, list[Question]] = {}
    for question in paper:
        kinds.setdefault(question.kind, []).append(question)
    drawing = random.Random(seed)
    for questions in kinds.values():
        drawing.shuffle(questions)
    places = sorted((place, kind) for kind, questions in kinds.items() for place in range(len(questions)))
    chosen = [kinds[kind][place] for place, kind in places[:count]]
    drawing.shuffle(chosen)
    return chosen


def as_items(questions: Sequence[Question]) -> list[Item]:
    """The questions as work for contenders."""
    return [Item(f"{question.kind} ({question.label})", question.image, question.text) for question in questions]
