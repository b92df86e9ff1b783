"""Token maps of a checkpoint: which visual tokens of given pictures it would keep, at half and at a quarter of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from foveola.artifact import Checkpoint
from foveola.compress.samples import read_examples
from foveola.compress.selecting import Selecting
from foveola.compress.token_map import strip, token_map
from foveola.exchange import Invalid
from foveola.family import family_of
from foveola.intake import decode
from foveola.weights.loading import load

AFTER, PARTS = 2, (2, 4)
_PROMPT = "Which defect is on this part?"


@dataclass(frozen=True, slots=True)
class TokenMap:
    """A picture with what is kept of its ``tokens``, once for every number in ``kept``, behind ``after`` blocks."""

    name: str
    tokens: int
    kept: tuple[int, ...]
    after: int
    sheet: Image.Image


def place_of(checkpoint: Checkpoint) -> int:
    """Behind how many blocks tokens are chosen: as the step ``tokens`` trained it, else ``AFTER``."""
    trained = [one.options.get("after") for one in checkpoint.lineage if one.step == "compress.tokens"]
    return int(trained[-1]) if trained and trained[-1] is not None else AFTER


@torch.no_grad()
def maps_of(checkpoint: Checkpoint, pictures: Sequence[Path]) -> list[TokenMap]:
    """One map per picture. Raises ``Invalid`` for a text model or a missing picture, ``Unsupported`` for towers whose
    tokens are not selected."""
    family = family_of(checkpoint.config)
    if not family.parts.vision:
        raise Invalid(f"{checkpoint.name} reads text alone; leave the pictures out.", field="pictures")
    missing = next((one for one in pictures if not one.is_file()), None)
    if missing is not None:
        raise Invalid(f"there is no picture {missing.name}; name files that exist.", field="pictures")
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps({"prompt": _PROMPT, "answer": "?", "image": str(one.resolve())}) for one in pictures]
        file = Path(folder, "samples.jsonl")
        file.write_text("\n".join(lines), encoding="utf-8")
        examples = read_examples(file, checkpoint, family)
    model, after = load(checkpoint, family), place_of(checkpoint)
    found = []
    for path, example in zip(pictures, examples, strict=True):
        tokens = int(example.is_vision.sum())
        merge = int(checkpoint.config["vision_config"].get("spatial_merge_size", 2))
        rows, columns = (int(side) // merge for side in example.inputs["image_grid_thw"][0, 1:])
        rgb = np.asarray(decode(path.read_bytes()).rgb)
        sheets, counts = [rgb], []
        for part in PARTS:
            selecting = Selecting(model, family, after=after, keep=max(1, tokens // part))
            with selecting.reading(example.inputs["image_grid_thw"], example.is_vision):
                model(**example.inputs, use_cache=False)
            assert selecting.kept is not None
            counts.append(len(selecting.kept.index))
            sheets.append(token_map(rgb, (rows, columns), selecting.kept.index.tolist()))
        found.append(TokenMap(path.name, tokens, tuple(counts), after, strip(sheets)))
    return found
