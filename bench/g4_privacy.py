"""Faces and plates in the project's labelled pictures: recall by size, time, and what attacks get back afterwards.

A region counts as hidden when at least 90 % of the box that a person drew is erased. The attack knows the original, the
detectors, the boxes and the algorithm: it pixelates every candidate and takes the nearest to what was published.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveola.bench.evidence import Bar, Script, Tell
from foveola.exchange import Refusal
from foveola.guard.detectors import Region
from foveola.guard.erase import Pixels, erase, mosaic
from foveola.guard.privacy import Deidentifier
from foveola.intake import decode

HIDDEN = 0.9
FACE_RECALL, PLATE_RECALL = 0.95, 0.90
CLASSES = {"face": ((0, 40), (40, 80), (80, 10**6)), "plate": ((0, 60), (60, 120), (120, 10**6))}
SAID = {"face": 40, "plate": 60}
PATCH = (24, 64)
_searching: Deidentifier | None = None
Labelled = tuple[str, Path, tuple[int, int, int, int]]


def labelled(data: Path) -> Iterator[tuple[Path, list[Labelled]]]:
    """(picture, [(kind, picture, (x, y, width, height))]) of every picture with boxes."""
    with (data / "manifest.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            notes = json.loads(row["annotation"]) if row["annotation"] else {}
            path = data / row["path"]
            boxes: list[Labelled] = [("face", path, tuple(box)) for box in notes.get("faces_xywh") or ()]
            boxes += [("plate", path, tuple(box[1:])) for box in notes.get("plates_xywh") or ()]
            if boxes:
                yield path, boxes


def search(path: Path) -> tuple[list[Region], float]:
    """The regions of one picture and the CPU seconds that they took; each process opens the detectors once."""
    global _searching
    if _searching is None:
        _searching = Deidentifier.open(threads=1)
    rgb = decode(path.read_bytes()).rgb
    began = time.process_time()
    regions = list(_searching.find(rgb))
    return regions, time.process_time() - began


def hidden_share(box: tuple[int, int, int, int], regions: Sequence[Region], shape: tuple[int, ...]) -> float:
    erased = np.zeros(shape[:2], bool)
    for one in regions:
        erased[one.top : one.bottom, one.left : one.right] = True
    x, y, width, height = box
    inside = erased[max(0, y) : y + height, max(0, x) : x + width]
    return float(inside.mean()) if inside.size else 1.0


def attack(crops: Sequence[Pixels], seed: int) -> dict[str, float]:
    """How often the right one of all ``crops`` is named from its published form: a mosaic, and an erasure."""
    rng = np.random.default_rng(seed)
    whole = (0, 0, PATCH[1], PATCH[0])
    framed = [np.pad(crop, ((8, 8), (8, 8), (0, 0)), constant_values=120) for crop in crops]
    box = (8, 8, 8 + PATCH[1], 8 + PATCH[0])
    guesses = np.array([mosaic(crop, whole) for crop in crops], float)

    def named(published: Sequence[Pixels]) -> float:
        cut = np.array([one[8:-8, 8:-8] for one in published], float)
        nearest = [int(((guesses - one) ** 2).sum((1, 2, 3)).argmin()) for one in cut]
        return float(np.mean(np.array(nearest) == np.arange(len(crops))))

    return {
        "candidates": len(crops),
        "chance": round(1 / len(crops), 4),
        "mosaic_named": round(named([mosaic(one, box) for one in framed]), 4),
        "erased_named": round(named([erase(one, [box], rng) for one in framed]), 4),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    beside = Path(os.environ.get("FOVEOLA_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data" / "privacy"
    parser.add_argument("--jobs", type=int, metavar="N", default=2, help="processes that search pictures")
    parser.add_argument("--data", type=Path, metavar="DIR", default=beside, help="labelled pictures with manifest.csv")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    if not (arguments.data / "manifest.csv").is_file():
        raise Refusal("There is no folder of labelled pictures; name one with --data DIR.")
    every = list(labelled(arguments.data))[:: 12 if arguments.quick else 1]
    shares: list[tuple[str, int, float]] = []
    crops: dict[str, list[Pixels]] = {"face": [], "plate": []}
    cpu_s, regions_found = [], 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        searched = list(pool.map(search, [path for path, _ in every]))
    for (path, boxes), (regions, taken_s) in zip(every, searched, strict=True):
        rgb = decode(path.read_bytes()).rgb
        cpu_s.append(taken_s)
        regions_found += len(regions)
        for kind, _, box in boxes:
            shares.append((kind, box[2], hidden_share(box, regions, rgb.shape)))
            x, y, width, height = box
            crop = Image.fromarray(rgb[max(0, y) : y + height, max(0, x) : x + width]).resize(PATCH[::-1])
            crops[kind].append(np.asarray(crop))
        tell(
            f"{path.name}: {len(regions)} regions, hidden {[round(share, 2) for _, _, share in shares[-len(boxes) :]]}"
        )
    classes = [
        {
            "kind": kind,
            "px": f"{low}+" if high == 10**6 else f"{low}-{high}",
            "labelled": len(found),
            "recall": round(float(np.mean(np.array(found) >= HIDDEN)), 4) if found else None,
        }
        for kind, sizes in CLASSES.items()
        for low, high in sizes
        for found in [[share for which, width, share in shares if which == kind and low <= width < high]]
    ]
    recall = {
        kind: float(np.mean([share >= HIDDEN for which, width, share in shares if which == kind and width >= least]))
        for kind, least in SAID.items()
    }
    attacks = {kind: attack(found, 0) for kind, found in crops.items() if len(found) > 1}
    figures = {
        "pictures": len(every),
        "regions": regions_found,
        "hidden_means": f"{HIDDEN:.0%} of the labelled box erased",
        "classes": classes,
        "cpu_s_per_picture": round(float(np.median(cpu_s)), 3),
        "attacks": attacks,
    }
    named = attacks["plate"]["erased_named"] if "plate" in attacks else float("nan")
    return figures, [
        Bar("recall of faces of 40 px and more", recall["face"], FACE_RECALL),
        Bar("recall of plates of 60 px and more", recall["plate"], PLATE_RECALL),
        Bar("erased plates named by the attack", named, 0.1, at_most=True),
    ]


SCRIPT = Script("g4", "privacy", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).resolve().parent))
