"""Real pictures with their manifests: the split, and random views of them.

The pictures are read where they lie and never copied. A picture belongs to the held-out split by its digest
(near duplicates together), so the split does not depend on order, time or seed.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from foveola.tiny.scenes import Box, Defect, Grey, Scene

NEU = {
    c: c.replace("_", " ")
    for c in ("crazing", "inclusion", "patches", "pitted_surface", "rolled-in_scale", "scratches")
}
MAGNETIC = {c: c for c in ("blowhole", "break", "crack", "fray", "uneven")} | {"good": ""}
PCB = {"open": "open", "short": "short", "mousebite": "mousebite", "spur": "spur", "copper": "spurious copper",
       "pin-hole": "pin-hole"}  # fmt: skip
_HELD_OUT_PER_CENT = {"neu_det": 14, "magnetic_tile": 22, "deeppcb": 18, "bsdata_ballscrew": 24, "crackforest": 20,
                      "meter_digit": 18, "meter_needle": 18}  # fmt: skip
_MATERIAL = {"neu_det": "hot-rolled steel strip", "magnetic_tile": "magnetic tile", "deeppcb": "printed circuit board",
             "bsdata_ballscrew": "ball screw", "crackforest": "road surface", "meter_digit": "meter",
             "meter_needle": "meter"}  # fmt: skip
# The share of a tile's views that show a part of it larger.
ZOOMED = 0.45
SOURCES = tuple(_HELD_OUT_PER_CENT)


@dataclass(frozen=True, slots=True)
class Record:
    """One real picture. ``grey`` is float32 [H, W] in 0..255; boxes in pixels; ``complete``: all defects are boxed."""

    path: str
    source: str
    grey: Grey
    name: str
    boxes: tuple[tuple[str, float, float, float, float], ...]
    complete: bool
    held_out: bool
    reading: str = ""

    @property
    def material(self) -> str:
        """What the picture shows."""
        return _MATERIAL[self.source]


def _group(row: dict[str, str]) -> str:
    """Pictures of one group fall on the same side of the split: shots of one tile, frames of one screw."""
    if row["set"] == "magnetic_tile":
        number = re.search(r"num_(\d+)", row["path"])
        return f"tile-{int(number[1]) // 100}" if number else row["sha256"]
    if row["set"] == "bsdata_ballscrew":
        return str(json.loads(row["annotation"])["sequence"])
    return row["sha256"]


def is_held_out(row: dict[str, str]) -> bool:
    """Whether a manifest row belongs to the split that is never trained on."""
    digest = hashlib.sha256(_group(row).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < _HELD_OUT_PER_CENT[row["set"]]


def _mask_box(path: Path, name: str) -> tuple[tuple[str, float, float, float, float], ...]:
    mask = np.asarray(Image.open(path).convert("L")) > 127
    if not mask.any():
        return ()
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    return ((name, float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)),)


def _record(folder: Path, row: dict[str, str]) -> Record:
    source, note = row["set"], json.loads(row["annotation"])
    path = folder / row["path"]
    grey = np.asarray(Image.open(path).convert("L"), np.float32)
    boxes: tuple[tuple[str, float, float, float, float], ...] = ()
    name, complete, reading = "", False, ""
    if source == "neu_det":
        name = NEU[row["label"]]
        boxes = tuple((NEU[b[0]], *map(float, b[1:])) for b in note["boxes"])  # type: ignore[misc]
        complete = len(boxes) == 1 and boxes[0][0] == name
    elif source == "magnetic_tile":
        name = MAGNETIC[row["label"]]
        boxes = _mask_box(path.parent / note["mask"], name) if note.get("mask") and name else ()
        complete = name in ("", "blowhole", "crack", "break")
    elif source == "deeppcb":
        boxes = tuple((PCB[b[0]], *map(float, b[1:])) for b in note["boxes"])  # type: ignore[misc]
        complete = True
    elif source == "bsdata_ballscrew":
        boxes = tuple(("pitting", *map(float, b[1:])) for b in note["boxes"])  # type: ignore[misc]
        name, complete = ("pitting" if boxes else ""), True
    elif source == "crackforest":
        name = "crack"
    elif source == "meter_digit":
        reading = str(note["digit"])
    elif source == "meter_needle":
        reading = str(int(float(note["needle"])))
    return Record(str(path), source, grey, name, boxes, complete, is_held_out(row), reading)


def load_records(data: Path) -> list[Record]:
    """All pictures of the known sources under ``data`` (the folder with ``defects`` and ``ocr``), and the clean boards.

    Raises:
        FileNotFoundError: there is no manifest.
    """
    records: list[Record] = []
    for part in ("defects", "ocr"):
        manifest = data / part / "manifest.csv"
        if not manifest.is_file():
            raise FileNotFoundError(
                f"no {part}/manifest.csv in the data folder; --data wants the folder that holds defects and ocr"
            )
        with manifest.open(newline="") as lines:
            rows = [r for r in csv.DictReader(lines) if r["set"] in SOURCES]
        for row in rows:
            record = _record(manifest.parent, row)
            records.append(record)
            if row["set"] == "deeppcb":
                clean = manifest.parent / row["path"]
                template = clean.parent / json.loads(row["annotation"])["template"]
                grey = np.asarray(Image.open(template).convert("L"), np.float32)
                records.append(Record(str(template), "deeppcb", grey, "", (), True, record.held_out))
    return records


def _zoom(record: Record, rng: np.random.Generator, aspect: float) -> tuple[int, int, int, int]:
    """A crop (x, y, w, h) of a tile at its own resolution, with a point of its defect in it."""
    height, width = record.grey.shape
    side = rng.uniform(80, 240)
    w, h = min(width, side * aspect**0.5), min(height, side / aspect**0.5)
    _, a, b, c, d = record.boxes[0] if record.boxes else ("", 0.0, 0.0, float(width), float(height))
    x, y = rng.uniform(a, c) - w * rng.uniform(0.15, 0.85), rng.uniform(b, d) - h * rng.uniform(0.15, 0.85)
    return int(min(max(0.0, x), width - w)), int(min(max(0.0, y), height - h)), int(w), int(h)


def _window(record: Record, rng: np.random.Generator, aspect: float, whole: bool) -> tuple[int, int, int, int]:
    """A crop (x, y, w, h) near the aspect w/h that keeps what the picture is named for."""
    height, width = record.grey.shape
    if record.source == "magnetic_tile" and not whole and rng.random() < ZOOMED:
        return _zoom(record, rng, aspect)
    if record.source == "deeppcb" or (record.source == "bsdata_ballscrew" and not whole):
        side = rng.uniform(130, 300) if record.source == "deeppcb" else rng.uniform(150, 440)
        w, h = min(width, side * aspect**0.5), min(height, side / aspect**0.5)
        if record.boxes:
            _, a, b, c, d = record.boxes[int(rng.integers(len(record.boxes)))]
            x = rng.uniform(max(0, c - w), max(0.01, min(a, width - w)) + 0.01) if c - a < w else (a + c - w) / 2
            y = rng.uniform(max(0, d - h), max(0.01, min(b, height - h)) + 0.01) if d - b < h else (b + d - h) / 2
        else:
            x, y = rng.uniform(0, width - w + 0.01), rng.uniform(0, height - h + 0.01)
    else:
        share = 1.0 if whole else rng.uniform(0.72, 1.0)
        w, h = min(width, height * aspect) * share, min(height, width / aspect) * share
        if record.source == "magnetic_tile":  # the shape of a tile says much: keep most of it
            w, h = (
                width * rng.uniform(0.85, 1) if not whole else width,
                height * rng.uniform(0.85, 1) if not whole else height,
            )
        x, y = rng.uniform(0, width - w + 0.01), rng.uniform(0, height - h + 0.01)
    x, y = min(max(0.0, x), width - w), min(max(0.0, y), height - h)
    return int(x), int(y), max(8, int(w)), max(8, int(h))


def _seen(record: Record, window: tuple[int, int, int, int]) -> list[Defect] | None:
    """The defects in the window; None where one is cut so that naming it would be a guess."""
    x, y, w, h = window
    kept: list[Defect] = []
    for name, a, b, c, d in record.boxes:
        box = (max(a, x), max(b, y), min(c, x + w), min(d, y + h))
        area = max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])
        share = area / max(1.0, (c - a) * (d - b))
        if record.source == "neu_det":
            if share > 0.15:
                kept.append(Defect(name, ((box[0] - x) / w, (box[1] - y) / h, (box[2] - x) / w, (box[3] - y) / h)))
        elif share > 0.7 or (record.source == "magnetic_tile" and area > 0.5 * w * h):
            kept.append(Defect(name, ((box[0] - x) / w, (box[1] - y) / h, (box[2] - x) / w, (box[3] - y) / h)))
        elif share > 0.05 or record.source == "magnetic_tile":
            return None
    return kept


def _flip(box: Box, across: bool, down: bool) -> Box:
    x1, y1, x2, y2 = box
    if across:
        x1, x2 = 1 - x2, 1 - x1
    if down:
        y1, y2 = 1 - y2, 1 - y1
    return x1, y1, x2, y2


def view(record: Record, rng: np.random.Generator, aspect: float = 1.0, *, whole: bool = False) -> tuple[Grey, Scene]:
    """A random crop and flip: the crop's pixels (float32 [h, w], at the picture's own resolution) and what may be
    asked about it (a Scene without pixels). ``whole`` takes the picture as it is."""
    for _ in range(12):
        window = _window(record, rng, aspect, whole)
        defects = _seen(record, window)
        if defects is not None:
            break
    else:
        window = (0, 0, record.grey.shape[1], record.grey.shape[0])
        defects = _seen(record, window) or []
    x, y, w, h = window
    crop = record.grey[y : y + h, x : x + w]
    turn = not whole and not record.reading
    across, down = (bool(rng.random() < 0.5), bool(rng.random() < 0.5)) if turn else (False, False)
    crop = crop[:: -1 if down else 1, :: -1 if across else 1]
    defects = [Defect(d.name, _flip(d.box, across, down)) for d in defects]
    if record.source == "neu_det" and not whole and rng.random() < 0.5:
        crop = crop.T
        defects = [Defect(d.name, (d.box[1], d.box[0], d.box[3], d.box[2])) for d in defects]
    names = (record.name,) if record.name else tuple(d.name for d in sorted(defects, key=lambda d: (d.cell, d.box)))
    ordered = tuple(sorted(defects, key=lambda d: (d.cell, d.box)))
    empty = np.zeros((0, 0, 3), np.uint8)
    return crop, Scene(empty, record.material, ordered, record.complete, names, reading=record.reading)


def cutouts(records: list[Record]) -> list[tuple[str, Grey]]:
    """Compact real defects of the training split, cut along their boxes, for pasting on clean pictures."""
    kept = []
    for r in records:
        if r.held_out or r.source not in ("neu_det", "magnetic_tile", "bsdata_ballscrew"):
            continue
        for name, a, b, c, d in r.boxes:
            small = (c - a) * (d - b) < 0.25 * r.grey.size and min(c - a, d - b) >= 8
            if small and name in (
                "inclusion",
                "patches",
                "scratches",
                "blowhole",
                "crack",
                "break",
                "pitting",
                "rolled-in scale",
            ):
                kept.append((name, r.grey[int(b) : int(d), int(a) : int(c)]))
    return kept


@functools.lru_cache(1)
def cached_records(data: str) -> tuple[Record, ...]:
    """``load_records`` once per process."""
    return tuple(load_records(Path(data)))
