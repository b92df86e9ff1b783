"""Records on disk for tests: pictures of two kinds of surface."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from foveola.learn.distil.records import FILE


def write_records(folder: Path, count: int, *, unlabelled: int = 0, seed: int = 0) -> Path:
    """``count`` records each of crack and pit, the first with a box, and some without a label."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(2 * count + unlabelled):
        pixels = rng.integers(0, 90, (40, 60, 3), dtype=np.uint8)
        pixels[10:30, 10:30] += np.uint8(60 + 60 * (number % 2))
        Image.fromarray(pixels).save(folder / f"{number}.png")
        label = None if number >= 2 * count else ("crack", "pit")[number % 2]
        boxes = [[label, 1 / 6, 0.25, 0.5, 0.75]] if number < 2 else None
        lines.append(json.dumps({"image": f"{number}.png", "label": label, "boxes": boxes}))
    (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
