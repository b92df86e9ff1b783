"""Figures of a long measurement, each kept as soon as it is had: a run that was interrupted goes on from them."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foveola.bench.evidence import write

_NO_MATTER = ("work", "json", "out", "seeds")
"""Arguments that change no figure: one of a seed has it in its name."""


def kept(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is at ``path`` (JSON), or else what ``measure`` gives, which is left there, whole or not at all."""
    if not path.is_file():
        write(measure(), path)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


class Kept:
    """Keeps figures in a folder of ``work`` that belongs to these arguments and this model; without ``work``, nowhere.

    What is kept must be a JSON object, and comes back as one: tuples as lists, keys as text.
    """

    def __init__(self, work: Path | None, arguments: argparse.Namespace, model_hash: str | None) -> None:
        settings = {name: str(value) for name, value in sorted(vars(arguments).items()) if name not in _NO_MATTER}
        print_of_it = hashlib.sha256(json.dumps([model_hash, settings]).encode()).hexdigest()[:12]
        self._folder = work / print_of_it if work else None

    def of(self, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is kept under ``name``, or what ``measure`` gives, which is kept from now on."""
        if self._folder is None:
            return measure()
        return kept(self._folder / f"{name.replace(' ', '-').replace(',', '')}.json", measure)
