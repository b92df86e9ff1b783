"""A run on disk: one safetensors file with everything that a repair needs to go on, exchanged whole."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from foveola.exchange import Damaged, Invalid
from foveola.learn.distil.reservoir import Shelf
from foveola.learn.distil.train import Distiller, Lessons

_KEY = "state"


def fingerprint(lessons: Lessons) -> str:
    """SHA-256 over every picture and label, in their order: a run goes on with the lessons that it began with."""
    digest = sha256()
    for part in (lessons.stream, lessons.old, lessons.guard_old, lessons.guard_new):
        digest.update(f"{len(part)};".encode())
        for one in part:
            digest.update(f"{one.label} {one.pixels.shape};".encode())
            digest.update(one.pixels.tobytes())
    return digest.hexdigest()


def save(distiller: Distiller, path: Path) -> None:
    """Write the run to ``path``, whole or not at all."""
    tensors: dict[str, Tensor] = {"shown": distiller.shown}
    parts = {
        "tower": distiller.pupil.tower.state_dict(), "heads": distiller.heads.state_dict(),
        "average": distiller.average.weights, "best": distiller.best or {},
    }  # fmt: skip
    for part, weights in parts.items():
        tensors |= {f"{part}.{name}": weight for name, weight in weights.items()}
    for index, moments in distiller.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{name}": torch.as_tensor(value) for name, value in moments.items()}
    shelves = []
    for (label, old), shelf in sorted(distiller.memory.reservoir.shelves.items()):
        name = f"shelf.{label}.{int(old)}"
        tensors[name] = torch.from_numpy(np.stack([*shelf.features, shelf.mean]))  # type: ignore[list-item]
        shelves.append({"label": label, "old": old, "keys": shelf.keys, "came": shelf.came})
    state = {
        "step": distiller.step, "counts": distiller.counts.tolist(), "seen": distiller.memory.seen,
        "averaged": distiller.average.steps, "stop": [distiller.stop.best, distiller.stop.without],
        "shelves": shelves, "options": distiller.options.to_json(), "lessons": fingerprint(distiller.lessons),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".partial")
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, staged, {_KEY: json.dumps(state)})
    os.replace(staged, path)


def restore(distiller: Distiller, path: Path) -> None:
    """Put a fresh ``distiller`` where the run at ``path`` stood.

    Raises ``Invalid`` where that run was made of other lessons or options, ``Damaged`` where the file is none.
    """
    try:
        with safe_open(path, "pt") as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, KeyError, ValueError):
        raise Damaged(f"{path.name} holds no run that can go on; remove it to begin anew.") from None
    if state["lessons"] != fingerprint(distiller.lessons) or state["options"] != distiller.options.to_json():
        raise Invalid(
            f"{path.name} is of a run with other records or options; give those again, or another --out to begin anew."
        )
    _put(distiller, state, tensors)


def _put(distiller: Distiller, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    def part(name: str) -> dict[str, Tensor]:
        return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}

    distiller.pupil.tower.load_state_dict(part("tower"))
    distiller.heads.load_state_dict(part("heads"))
    distiller.average.weights, distiller.average.steps = part("average"), state["averaged"]
    distiller.best = part("best") or None
    distiller.stop.best, distiller.stop.without = state["stop"]
    distiller.step, distiller.counts = state["step"], np.array(state["counts"])
    distiller.shown, distiller.memory.seen = tensors["shown"], list(state["seen"])
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in part("adam").items():
        index, _, name = key.partition(".")
        moments.setdefault(int(index), {})[name] = value
    known = distiller.optimiser.state_dict()
    distiller.optimiser.load_state_dict({"state": moments, "param_groups": known["param_groups"]})
    distiller.memory.reservoir.shelves = {
        (one["label"], one["old"]): _shelf(one, tensors[f"shelf.{one['label']}.{int(one['old'])}"].numpy())
        for one in state["shelves"]
    }


def _shelf(told: dict[str, Any], rows: Any) -> Shelf:
    return Shelf(list(told["keys"]), list(rows[:-1]), rows[-1], told["came"])
