"""What is asked of every contender: questions about generated pictures, or about those of a folder."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.bench.sample import Item
from foveola.exchange import BadImage, Invalid, Refusal
from foveola.intake import decode
from foveola.tiny import real, scenes, words

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
SIZES = ((224, 224), (160, 160), (200, 280), (320, 240), (480, 640), (224, 224), (256, 256), (120, 360))
TASKS = ("defect", "where", "box", "verdict", "count", "describe")
ASKED = ("What defect is on this surface?", "Where is the defect?", "Pass or fail?", "这是什么缺陷？")


def generated_items(count: int, *, seed: int = 0) -> list[Item]:
    """``count`` questions about generated parts of several sizes, in English and Chinese; the same for every ``seed``.

    No fonts and no files are needed.
    """
    items = []
    for index in range(count):
        height, width = SIZES[index % len(SIZES)]
        scene = scenes.scene(np.random.default_rng([seed, index]), height, width)
        asking = random.Random(seed * 1_000_003 + index)
        task = TASKS[index % len(TASKS)]
        text = words.question(task, "zh" if index % 4 == 3 else "en", asking)
        # Every other one as cameras send them.
        data = encoded(scene.pixels, "JPEG" if index % 2 else "PNG")
        items.append(Item(f"generated {index}: {task}", data, text))
    return items


def encoded(pixels: NDArray[np.uint8], kind: Literal["PNG", "JPEG"]) -> bytes:
    """``pixels`` [H, W, 3] as a file."""
    out = io.BytesIO()
    quality = {"quality": 92} if kind == "JPEG" else {"compress_level": 1}
    Image.fromarray(pixels).save(out, kind, **quality)
    return out.getvalue()


def folder_items(folder: Path) -> list[Item]:
    """One question about every picture in ``folder`` and below, in the order of their names.

    Raises ``Invalid`` where there is none, and what decoding raises, with the file's name, for one that is broken.
    """
    if not folder.is_dir():
        raise Invalid(f"{folder.name} is no directory; name a folder with pictures.", field="pictures")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise Invalid(
            f"{folder.name} holds no pictures; expected files with one of the endings {', '.join(sorted(SUFFIXES))}.",
            field="pictures",
        )
    return [Item(path.name, _checked(path), ASKED[index % len(ASKED)]) for index, path in enumerate(paths)]


def _checked(path: Path) -> bytes:
    data = path.read_bytes()
    try:
        decode(data)
    except Refusal as refusal:
        raise BadImage(f"{path.name}: {refusal.message}", field="pictures") from None
    return data


def steel_items(data: Path) -> list[tuple[bytes, str]]:
    """Pictures of steel that no model of ours was trained on, as files, each with the name of its defect.

    ``data`` is the folder with ``defects`` in it (NEU-DET); order is that of a digest, so that the defects are mixed.
    Raises ``Invalid`` where there is none.
    """
    manifest = data / "defects" / "manifest.csv"
    if not manifest.is_file():
        raise Invalid(f"{data.name} holds no defects with a manifest; name the project's data folder.", field="data")
    with manifest.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["set"] == "neu_det" and real.is_held_out(row)]
    rows.sort(key=lambda row: row["sha256"])
    return [((manifest.parent / row["path"]).read_bytes(), real.NEU[row["label"]]) for row in rows]
