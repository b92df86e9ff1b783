"""A node and its folder at a site: what it holds is written after every answer, so that it may end at any moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from foveola.artifact.prompt import ROWS
from foveola.exchange import Damaged, Invalid
from foveola.learn.federate.codec import Floats
from foveola.learn.federate.node import Memory, Node
from foveola.learn.federate.options import FederationOptions
from foveola.learn.federate.problem import Labels, Problem, normalised

MEMORY_FILE = "node.npz"


class Site:
    """One node with its ``folder``. Not thread-safe."""

    def __init__(self, folder: Path, node: Node) -> None:
        """Go on where the folder was left, or begin. Raises ``Damaged``."""
        self._node, self._file = node, folder / MEMORY_FILE
        folder.mkdir(parents=True, exist_ok=True)
        if self._file.exists():
            try:
                with np.load(self._file, allow_pickle=False) as held:
                    arrays = {name: held[name] for name in ("prompt", "residual", "sent")}
                    memory = Memory(known=int(held["known"]), sent_in=int(held["sent_in"]), **arrays)
                node.remember(memory)
            except (OSError, ValueError, KeyError, TypeError, EOFError):
                raise Damaged(
                    f"{MEMORY_FILE} cannot be read, or is of another federation; remove it, and the node begins anew."
                ) from None

    def answer(self, messages: Sequence[bytes], *, counted: int) -> bytes:
        """Take over what was missed, train, and the update to send. ``counted`` is the last round in which an update
        counted. Raises ``Rejected`` where a snapshot is needed; the folder knows it then."""
        self._node.settle(counted)
        try:
            self._node.receive(messages)
            return self._node.train()
        finally:
            self._save()

    def _save(self) -> None:
        staged = self._file.with_suffix(".partial")
        with staged.open("wb") as stream:
            np.savez(stream, **asdict(self._node.memory()))
        os.replace(staged, self._file)


def open_site(folder: Path, features: Path, *, number: int, keep: float, steps: int) -> Site:
    """A site that trains on the features of its own pictures (see ``read_features``)."""
    held, labels = read_features(features)
    options = FederationOptions(width=held.shape[1], keep=keep)
    return Site(folder, Node(number, Problem().on(held, labels, steps), options))


def read_features(file: Path) -> tuple[Floats, Labels]:
    """Features float32 ``[N, width]``, normalised, and labels int64 ``[N]`` in 0..15 from a ``.npz`` with these names.
    Raises ``Invalid``."""
    wanted = f"a .npz with finite features [N, width] and labels [N] in 0..{ROWS - 1}"
    try:
        with np.load(file, allow_pickle=False) as held:
            features, labels = held["features"], held["labels"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError, BadZipFile):
        raise Invalid(f"{file.name} cannot be read; expected {wanted}.") from None
    numbers = features.dtype.kind in "fiu" and labels.dtype.kind in "fiu"
    if not numbers or not np.array_equal(labels, np.trunc(labels)):
        raise Invalid(f"{file.name} holds other numbers than whole labels and real features; expected {wanted}.")
    features, labels = features.astype(np.float32), labels.astype(np.int64)
    fits = features.ndim == 2 and labels.shape == (len(features),) and features.size > 0
    if not fits or not np.isfinite(features).all() or labels.min() < 0 or labels.max() >= ROWS:
        raise Invalid(f"{file.name} holds something else than {wanted}.")
    return normalised(features), labels
