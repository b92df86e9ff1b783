"""What a step of a recipe is, and how it is found by name.

A step is a frozen dataclass of its options with one method::

    @step("halve")
    @dataclass(frozen=True, slots=True)
    class Halve:
        '''Stores matrices in 16 bits.'''

        patterns: tuple[str, ...] = ("*",)

        def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
            ...read source, write the whole new checkpoint (config.json, weights, tokenizer ...) into ``folder``...
            return Finding(step="compress.halve", changed="...", before={...}, after={...})

and one line in ``STEPS``, which says in which module it is. The fields become the keys of its table in a TOML recipe
(``settings.build`` reads them: numbers, text, lists, tables, nested dataclasses; unknown keys are refused).

``folder`` is empty and becomes a sealed checkpoint when ``run`` returns; what it raises leaves nothing behind.
``bench.journal`` is a folder that outlives an interruption: what is kept there layer by layer need not be computed
again. A step that works through layers one by one should use ``stream.rewrite``, which does that and holds one block
of weights in memory; one that needs the whole model takes ``weights.loading.load`` and ``keep_side_files``.
Patterns are matched with ``weights.patterns.matched``, which refuses one that matches nothing.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from foveola.artifact import Checkpoint, Finding
from foveola.artifact.checkpoint import SEAL_FILE
from foveola.exchange import Invalid

STEPS = {
    "awq": "foveola.compress.awq",
    "export": "foveola.compress.export",
    "round": "foveola.compress.rounding",
    "precision": "foveola.compress.precision",
    "prune": "foveola.compress.pruning",
    "tokens": "foveola.compress.tokens",
    "tune": "foveola.compress.tune",
}
"""Name of a step -> the module that registers it."""

Progress = Callable[[str, float], None]
"""Called with what begins and the share of the step that is done (0..1)."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """What a step is given besides its source.

    ``calibration`` is the file of calibration samples (``samples.read_samples``), None where the recipe names none.
    ``origin`` is the checkpoint that the recipe began with, before all steps.
    """

    journal: Path
    tell: Progress = field(default=lambda what, share: None)
    calibration: Path | None = None
    seed: int = 0
    origin: Checkpoint | None = None


class Step(Protocol):
    """Checkpoint to checkpoint, with evidence."""

    name: ClassVar[str]

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Write the changed checkpoint into the empty ``folder``. Raises ``Refusal`` where it cannot be done."""
        ...


S = TypeVar("S")
_registered: dict[str, type[Step]] = {}


def step(name: str) -> Callable[[type[S]], type[S]]:
    """Class decorator: the step is called ``name`` in recipes."""

    def register(kind: type[S]) -> type[S]:
        made: Any = kind
        made.name = name
        _registered[name] = made
        return kind

    return register


def step_class(name: str) -> type[Step]:
    """The step called ``name``. Raises ``Invalid`` naming those that exist."""
    if name not in _registered and name in STEPS:
        importlib.import_module(STEPS[name])
    if name not in _registered:
        known = ", ".join(sorted({*STEPS, *_registered}))
        raise Invalid(f"there is no step {name!r}; steps are: {known}. Correct the recipe.", field="use")
    return _registered[name]


def keep_side_files(source: Checkpoint, folder: Path) -> None:
    """Copy what is not weights from ``source`` to ``folder``: config, tokenizer, preprocessor, template, card.

    Files that ``folder`` has already are left as they are.
    """
    left_out = {*source.weight_files, "model.safetensors.index.json", SEAL_FILE}
    for file in sorted(source.path.rglob("*")):
        relative = file.relative_to(source.path)
        target = folder / relative
        if file.is_file() and relative.as_posix() not in left_out and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
