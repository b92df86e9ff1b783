"""A recipe: steps in order, and the samples that they calibrate on. TOML, or Python where TOML is not enough.

::

    name = "tiny-w4"                    # of the checkpoint that comes out; default: the source's
    seed = 0

    [calibration]
    samples = "calibration/samples.jsonl"   # relative to the recipe

    [[step]]
    use = "awq"
    decoder = {bits = 4, group = 32}

A recipe in Python is a file that sets ``recipe = Recipe(...)``; it is run, so it must be trusted.
"""

from __future__ import annotations

import dataclasses
import json
import runpy
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.compress.settings import build
from foveola.compress.steps import Step, step_class
from foveola.exchange import Invalid, Refusal


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to a checkpoint, in order."""

    steps: tuple[Step, ...]
    name: str | None = None
    calibration: Path | None = None
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain JSON data: what is the same there gives the same result."""
        return {
            "name": self.name,
            "seed": self.seed,
            "calibration": None if self.calibration is None else self.calibration.name,
            "steps": [options_of(one) for one in self.steps],
        }


def options_of(step: Step) -> dict[str, Any]:
    """The step's resolved options as plain JSON data, with ``use``, its name."""
    fields: dict[str, Any] = dataclasses.asdict(step)  # type: ignore[call-overload]
    return {"use": step.name, **json.loads(json.dumps(fields, default=str))}


@dataclass(frozen=True, slots=True)
class _Calibration:
    samples: str


def load_recipe(path: Path) -> Recipe:
    """The recipe in the file ``path`` (.toml or .py). Raises ``Invalid`` saying what is wrong with it."""
    if not path.is_file():
        raise Invalid(f"the recipe {path.name} does not exist; name a .toml or .py file.", field="recipe")
    if path.suffix == ".py":
        return _from_python(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the recipe {path.name} is not TOML: {error}.", field="recipe") from None
    return recipe_of(document, path.parent)


def recipe_of(document: Mapping[str, Any], folder: Path) -> Recipe:
    """The recipe that parsed TOML describes; ``folder`` is where its relative paths begin."""
    tables = document.get("step")
    if not isinstance(tables, list) or not tables:
        raise Invalid("the recipe has no steps; give at least one [[step]] with use = NAME.", field="step")
    unknown = sorted(set(document) - {"step", "name", "seed", "calibration"})
    if unknown:
        raise Invalid(
            f"the recipe has no setting {unknown[0]!r}; there are: name, seed, calibration, step.", field=unknown[0]
        )
    steps = tuple(_step(number, table) for number, table in enumerate(tables, 1))
    name, seed = document.get("name"), document.get("seed", 0)
    if name is not None and not isinstance(name, str):
        raise Invalid(f"name of the recipe is {name!r}; expected text.", field="name")
    if type(seed) is not int:
        raise Invalid(f"seed of the recipe is {seed!r}; expected a whole number.", field="seed")
    return Recipe(steps, name, _samples(document, folder), seed)


def _samples(document: Mapping[str, Any], folder: Path) -> Path | None:
    if "calibration" not in document:
        return None
    table = document["calibration"]
    if not isinstance(table, Mapping):
        raise Invalid("calibration of the recipe is a table: write [calibration] above samples.", field="calibration")
    samples = folder / build(_Calibration, table, "calibration").samples
    if not samples.is_file():
        lacks = "are no file" if samples.exists() else "do not exist"
        raise Invalid(
            f"the calibration samples {samples.name or samples} {lacks}; name a .jsonl file.", field="samples"
        )
    return samples


def _step(number: int, table: object) -> Step:
    if not isinstance(table, Mapping) or not isinstance(table.get("use"), str):
        raise Invalid(f"step {number} does not say what to use; begin it with use = NAME.", field="use")
    name = str(table["use"])
    options = {key: value for key, value in table.items() if key != "use"}
    return build(step_class(name), options, f"step {number} ({name})")


def _line_of(error: Exception, path: Path) -> str:
    lines = [error.lineno] if isinstance(error, SyntaxError) else []
    lines += [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" in line {lines[-1]}" if lines else ""


def _from_python(path: Path) -> Recipe:
    try:
        made = runpy.run_path(str(path)).get("recipe")
    except Refusal:
        raise
    except Exception as error:  # noqa: BLE001  the recipe is the user's code, and may fail with anything
        raise Invalid(f"{path.name} fails{_line_of(error, path)}: {error!r}. Correct it.", field="recipe") from None
    if not isinstance(made, Recipe):
        raise Invalid(f"{path.name} sets no recipe; it must end with recipe = Recipe(steps=(...)).", field="recipe")
    return made
