"""What a federation remembers on disk: one sealed directory, exchanged whole after every round.

``FOLDER/state`` holds the state; ``FOLDER/inbox`` the updates of the open round, one file each. A process that is
killed at any moment finds either the last round or the next one, and the updates that had come.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact.atomic import staged_directory
from foveola.artifact.bundle import utc_now
from foveola.artifact.seal import check_seal, read_json, read_seal, write_seal
from foveola.exchange import Damaged, Refusal
from foveola.learn.federate.answers import Answers, Known
from foveola.learn.federate.codec import Floats
from foveola.learn.federate.options import MAX_BYTES, FederationOptions

FORMAT = "foveola.federation/2"
SEAL_FILE, ROUND_FILE = "federation.json", "round.json"
ARRAYS = ("prompt", "centre", "residual", "first", "second", "moved")


@dataclass(slots=True, eq=False)
class State:
    """``prompt``, ``centre`` (the last aggregate), ``residual`` (not yet broadcast), ``first`` and ``second`` (moments
    of the server's step), ``moved`` (the last step) are float32 ``[size]``; ``broadcasts`` holds the newest broadcasts
    by the round that they ended; ``scores`` how far nodes agreed so far, ``answers`` how they answered to steps."""

    options: FederationOptions
    round: int
    prompt: Floats
    centre: Floats
    residual: Floats
    first: Floats
    second: Floats
    moved: Floats
    broadcasts: dict[int, bytes]
    scores: dict[int, float]
    answers: Known


def save(folder: Path, state: State) -> None:
    """Write the state, whole or not at all."""
    with staged_directory(folder / "state", replace=True) as staging:
        for name in ARRAYS:
            (staging / f"{name}.f32").write_bytes(getattr(state, name).astype("<f4").tobytes())
        for number, data in state.broadcasts.items():
            (staging / f"broadcast-{number:08d}").write_bytes(data)
        told = {"round": state.round, "options": asdict(state.options), "scores": state.scores,
                "answers": {node: astuple(one) for node, one in state.answers.items()}}  # fmt: skip
        (staging / ROUND_FILE).write_text(json.dumps(told) + "\n", encoding="utf-8")
        write_seal(staging, SEAL_FILE, format=FORMAT, name="federation", created=utc_now(), lineage=())


def load(folder: Path) -> State:
    """Read the state. Raises Damaged naming the file that is wrong."""
    root = folder / "state"
    if not (root / SEAL_FILE).is_file():
        raise Damaged(f"{folder.name} holds no federation; start one there first.")
    seal = read_seal(root, SEAL_FILE, format=FORMAT)
    check_seal(root, SEAL_FILE, seal, digests=True)
    told = read_json(root, ROUND_FILE)
    options, number = _options(told.get("options")), told.get("round")
    if type(number) is not int or number < 0:
        raise Damaged(f"{ROUND_FILE}: round is a number of at least 0.")
    arrays = {name: _array(root, f"{name}.f32", options.rows * options.width) for name in ARRAYS}
    names = sorted(name for name in seal.files if name.startswith("broadcast-"))
    broadcasts = {int(name.removeprefix("broadcast-")): (root / name).read_bytes() for name in names}
    return State(options, number, **arrays, broadcasts=broadcasts, scores=_scores(told), answers=_answers(told))


def keep_update(folder: Path, number: int, node: int, data: bytes) -> None:
    """Put an accepted update where ``kept_updates`` finds it. Not forced to the disk: after a power cut it is sent
    again, or missing."""
    inbox = folder / "inbox" / f"{number:08d}"
    inbox.mkdir(parents=True, exist_ok=True)
    staged = inbox / f".{node}.partial"
    staged.write_bytes(data)
    os.replace(staged, inbox / str(node))


def kept_updates(folder: Path, number: int) -> list[tuple[int, bytes]]:
    """(node, bytes) of the open round; what is longer than an update may be is left out."""
    inbox = folder / "inbox" / f"{number:08d}"
    files = sorted(inbox.iterdir()) if inbox.is_dir() else []
    return [
        (int(file.name), file.read_bytes())
        for file in files
        if file.name.isdecimal() and file.is_file() and file.stat().st_size <= MAX_BYTES
    ]


def drop_updates(folder: Path, number: int) -> None:
    """Remove the inbox of every round before ``number``."""
    inbox = folder / "inbox"
    for old in inbox.iterdir() if inbox.is_dir() else ():
        if old.name.isdecimal() and int(old.name) < number:
            shutil.rmtree(old, ignore_errors=True)


def _options(data: Any) -> FederationOptions:
    try:
        return FederationOptions(**data)
    except (TypeError, Refusal):
        raise Damaged(f"{ROUND_FILE}: options are not those of a federation of this version.") from None


def _scores(told: Mapping[str, Any]) -> dict[int, float]:
    try:
        return {int(node): float(score) for node, score in told["scores"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Damaged(f"{ROUND_FILE}: scores are numbers by node.") from None


def _answers(told: Mapping[str, Any]) -> Known:
    try:
        found = {
            int(node): Answers(float(a), int(b), float(c), *map(int, rest))
            for node, (a, b, c, *rest) in told["answers"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise Damaged(f"{ROUND_FILE}: answers are at most six numbers by node.") from None
    return found


def _array(root: Path, name: str, size: int) -> Floats:
    try:
        raw = (root / name).read_bytes()
    except OSError:
        raise Damaged(f"{name} is missing or cannot be read.") from None
    if len(raw) != size * 4:
        raise Damaged(f"{name} has {len(raw)} bytes; {size * 4} were expected.")
    values = np.frombuffer(raw, "<f4").copy()
    if not np.isfinite(values).all():
        raise Damaged(f"{name} holds numbers that are not finite.")
    return values
