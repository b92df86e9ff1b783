"""Samples for the scripts about compression: questions about training pictures, and real text.

They are written as the file that a recipe's ``[calibration]`` names, so that scripts and users calibrate alike.
"""

from __future__ import annotations

import json
import pydoc_data.topics
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from foveola.exchange import Invalid
from foveola.tiny import labels, real, scenes, turns
from foveola.tiny.real import Record
from foveola.tiny.scenes import Scene

_SHARES = {"steel": 0.4, "magnetic": 0.15, "scene": 0.25, "label": 0.2}
_SIZES = ((112, 112), (140, 140), (168, 168), (112, 168))


def training_samples(data: Path, folder: Path, count: int, *, seed: int = 0) -> Path:
    """Write ``count`` questions with answers about pictures of the training split into ``folder``; the file's path.

    ``data`` is the project's data folder. Nothing of the held-out split is used. Raises ``Invalid`` without the data.
    """
    try:
        records = [record for record in real.cached_records(str(data)) if not record.held_out]
    except FileNotFoundError as missing:
        raise Invalid(str(missing), field="data") from None
    folder.mkdir(parents=True, exist_ok=True)
    talk = random.Random(seed)
    lines = []
    for number, (pixels, scene) in enumerate(_drawn(records, count, seed)):
        picture = folder / f"{number:05d}.png"
        Image.fromarray(pixels).save(picture, "PNG", compress_level=1)
        (question, answer) = turns.turns_for(scene, talk, 4)[number % 2 if not scene.reading else 0]
        lines.append(json.dumps({"prompt": question, "answer": answer, "image": picture.name}, ensure_ascii=False))
    path = folder / "samples.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _drawn(records: list[Record], count: int, seed: int) -> Iterator[tuple[np.ndarray, Scene]]:
    cuts = real.cutouts(records)
    pools = {
        "steel": [r for r in records if r.source == "neu_det"],
        "magnetic": [r for r in records if r.source == "magnetic_tile"],
    }
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = str(rng.choice(list(_SHARES), p=list(_SHARES.values())))
        if kind in pools:
            record = pools[kind][int(rng.integers(len(pools[kind])))]
            grey, scene = real.view(record, rng)
            yield np.repeat(grey.clip(0, 255).astype(np.uint8)[:, :, None], 3, 2), scene
        else:
            height, width = _SIZES[int(rng.integers(len(_SIZES)))]
            made = scenes.scene(rng, height, width, cutouts=cuts) if kind == "scene" else labels.label(rng, 56, 168)
            yield made.pixels, made


def documentation_texts(
    folder: Path, count: int, *, characters: int = 1200, seed: int = 0, held_out: bool = False
) -> Path:
    """Write ``count`` passages of Python's own reference manual into ``folder``; the file's path.

    Every third topic is held out; passages of one side never come from the topics of the other.
    """
    topics = sorted(pydoc_data.topics.topics.items())
    side = [text for index, (_, text) in enumerate(topics) if (index % 3 == 0) == held_out]
    long = [text for text in side if len(text) > characters]
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        text = draw.choice(long)
        start = draw.randrange(len(text) - characters)
        lines.append(json.dumps({"text": " ".join(text[start : start + characters].split())}))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("held_out.jsonl" if held_out else "texts.jsonl")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
