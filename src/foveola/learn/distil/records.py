"""Records of a line on disk: a folder with ``records.jsonl``, one JSON object per line, in the order they came.

    {"image": "pictures/0001.png", "label": "scratches", "boxes": [["scratches", 0.1, 0.2, 0.4, 0.9]]}

``label`` may be absent or null: nobody said. ``boxes`` are x1, y1, x2, y2 as shares of the picture's sides, and where
they are given they are all there are. Pictures lie inside of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.exchange import Damaged, Invalid

FILE = "records.jsonl"
Box = tuple[str, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Record:
    """One picture and what is known of it; ``boxes`` None: nobody said where."""

    image: Path
    label: str | None
    boxes: tuple[Box, ...] | None


def read_records(folder: Path) -> list[Record]:
    """All records of a folder. Raises ``Damaged`` without a list, ``Invalid`` naming the line that is wrong."""
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise Damaged(
            f"{folder.name} has no readable {FILE}; expected a folder of records (docs/learning.md)."
        ) from None
    records = [_record(folder, text, number) for number, text in enumerate(lines, 1) if text.strip()]
    if not records:
        raise Invalid(f"{folder.name}/{FILE} holds no record; there is nothing to learn from.", field="records")
    return records


def _record(folder: Path, text: str, number: int) -> Record:
    def wrong(what: str) -> Invalid:
        return Invalid(f"{FILE}, line {number}: {what}", field="records")

    try:
        told = json.loads(text)
    except ValueError:
        raise wrong("this is no JSON; expected one object per line.") from None
    if not isinstance(told, dict) or not isinstance(told.get("image"), str):
        raise wrong('expected an object with "image", the path of a picture inside of the folder.')
    strange = sorted(set(told) - {"image", "label", "boxes"})
    if strange:
        raise wrong(f"{strange[0][:40]!r} is not known; a record has image, label and boxes.")
    image = folder / told["image"]
    if not image.resolve().is_relative_to(folder.resolve()):
        raise wrong("the picture lies outside of the folder; copy it into it.")
    label = told.get("label")
    if label is not None and (not isinstance(label, str) or not label.strip()):
        raise wrong('"label" is the name of a class, or null where nobody said.')
    boxes = told.get("boxes")
    try:
        return Record(image, label, None if boxes is None else tuple(_boxes(boxes)))
    except (TypeError, ValueError):
        raise wrong(
            '"boxes" is a list of [class, x1, y1, x2, y2], shares of the sides from 0 to 1, the first corner first.'
        ) from None


def _boxes(given: Any) -> Iterator[Box]:
    for name, *corners in given:
        x1, y1, x2, y2 = (float(corner) for corner in corners)
        if not isinstance(name, str) or not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
            raise ValueError
        yield name, x1, y1, x2, y2


def classes_of(records: list[Record]) -> tuple[str, ...]:
    """The labels that occur, in alphabetical order. Raises ``Invalid`` for fewer than two."""
    names = tuple(sorted({one.label for one in records if one.label is not None}))
    if len(names) < 2:
        raise Invalid(
            f"the records name {len(names)} class{'' if len(names) == 1 else 'es'}; a repair tells at least two apart. "
            "Label some records, or give --classes.",
            field="classes",
        )
    return names
