"""A Prompt: a visual prompt, rows of numbers as wide as a model's features, sealed in one directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.artifact.atomic import staged_directory
from foveola.artifact.bundle import utc_now
from foveola.artifact.finding import Finding
from foveola.artifact.seal import check_name, check_seal, read_json, read_seal, write_seal
from foveola.exchange import Damaged

FORMAT = "foveola.prompt/1"
SEAL_FILE = "prompt.json"
SHAPE_FILE = "shape.json"
VALUES_FILE = "values.f32"
ROWS = 16
MAX_WIDTH = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """An opened prompt. ``values`` is float32 ``[ROWS, width]``, read-only and finite.

    ``base`` is the model_hash of the bundle whose features it was trained on, None where it belongs to no bundle.
    """

    path: Path
    name: str
    created: str
    model_hash: str
    lineage: tuple[Finding, ...]
    base: str | None
    values: NDArray[np.float32]

    @property
    def width(self) -> int:
        """Numbers per row."""
        return int(self.values.shape[1])

    @classmethod
    def open(cls, path: Path | str) -> Prompt:
        """Open the prompt at ``path`` and check every byte of it. Raises Damaged naming the file that is wrong."""
        root = Path(path)
        if not (root / SEAL_FILE).is_file():
            raise Damaged(f"{root.name or 'The path'} is no prompt: a directory with a {SEAL_FILE} in it was expected.")
        root = root.resolve()
        seal = read_seal(root, SEAL_FILE, format=FORMAT)
        check_seal(root, SEAL_FILE, seal, digests=True)
        shape = read_json(root, SHAPE_FILE)
        width, base = shape.get("width"), shape.get("base")
        known = shape.get("rows") == ROWS and shape.get("dtype") == "float32"
        if not known or type(width) is not int or not 1 <= width <= MAX_WIDTH:
            raise Damaged(f"{SHAPE_FILE} describes something else than {ROWS} rows of up to {MAX_WIDTH} float32.")
        if base is not None and not isinstance(base, str):
            raise Damaged(f"{SHAPE_FILE}: base is the hash of a bundle as text, or null.")
        if VALUES_FILE not in seal.files:
            raise Damaged(f"{VALUES_FILE} is not part of the prompt; write it anew.")
        raw = (root / VALUES_FILE).read_bytes()
        if len(raw) != ROWS * width * 4:
            raise Damaged(f"{VALUES_FILE} has {len(raw)} bytes; {ROWS} rows of {width} float32 are {ROWS * width * 4}.")
        values = np.frombuffer(raw, "<f4").reshape(ROWS, width)
        if not np.isfinite(values).all():
            raise Damaged(f"{VALUES_FILE} holds numbers that are not finite; train the prompt anew.")
        return cls(root, seal.name, seal.created, seal.model_hash, seal.lineage, base, values)


def write_prompt(
    out: Path | str,
    values: NDArray[np.float32],
    *,
    name: str,
    base: str | None = None,
    lineage: Sequence[Finding] = (),
    replace: bool = False,
    created: str | None = None,
) -> Prompt:
    """Write a prompt to ``out``, whole or not at all, and return it opened.

    ``values`` is ``[ROWS, width]``. Raises ValueError for another shape, numbers that are not finite or an invalid
    name, FileExistsError when ``out`` holds something and ``replace`` is False.
    """
    check_name(name)
    kept = np.ascontiguousarray(values, "<f4")
    if kept.ndim != 2 or kept.shape[0] != ROWS or not 1 <= kept.shape[1] <= MAX_WIDTH:
        raise ValueError(f"a prompt has the shape [{ROWS}, 1 to {MAX_WIDTH}], not {list(kept.shape)}")
    if not np.isfinite(kept).all():
        raise ValueError("a prompt holds finite numbers only")
    shape: Mapping[str, Any] = {"rows": ROWS, "width": kept.shape[1], "dtype": "float32", "base": base}
    with staged_directory(Path(out), replace=replace) as staging:
        (staging / VALUES_FILE).write_bytes(kept.tobytes())
        (staging / SHAPE_FILE).write_text(json.dumps(shape) + "\n", encoding="utf-8")
        write_seal(staging, SEAL_FILE, format=FORMAT, name=name, created=created or utc_now(), lineage=lineage)
    return Prompt.open(out)
