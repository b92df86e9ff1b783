from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

pytest.importorskip("torch")

from foveola.compress.recipe import Recipe, load_recipe, options_of, recipe_of
from foveola.compress.rounding import Round
from foveola.compress.settings import build
from foveola.compress.steps import step_class
from foveola.exchange import Invalid

TOML = """
name = "small"
seed = 3
[calibration]
samples = "samples.jsonl"
[[step]]
use = "round"
patterns = ["model.visual.*"]
storage = "int8/32"
[[step]]
use = "round"
"""


@dataclass(frozen=True)
class Inner:
    bits: int = 4
    damping: float = 0.01

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise ValueError(f"bits is {self.bits}; expected 4 or 8")


@dataclass(frozen=True)
class Options:
    needed: str
    inner: Inner = field(default_factory=Inner)
    kind: Literal["a", "b"] = "a"
    sizes: tuple[int, ...] = ()
    limit: int | None = None
    table: dict[str, int] = field(default_factory=dict)
    half: Inner | Literal["off"] = "off"


def test_a_recipe_is_read_from_toml(tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").touch()
    (tmp_path / "recipe.toml").write_text(TOML)
    recipe = load_recipe(tmp_path / "recipe.toml")
    assert recipe.steps == (Round(("model.visual.*",), "int8/32"), Round())
    assert (recipe.name, recipe.seed, recipe.calibration) == ("small", 3, tmp_path / "samples.jsonl")
    assert recipe.to_json()["steps"][0] == {"use": "round", "patterns": ["model.visual.*"], "storage": "int8/32"}


def test_a_recipe_in_python_is_run(tmp_path: Path) -> None:
    text = "from foveola.compress.recipe import Recipe\nfrom foveola.compress.rounding import Round\n"
    (tmp_path / "recipe.py").write_text(f"{text}recipe = Recipe((Round(),))\n")
    assert load_recipe(tmp_path / "recipe.py") == Recipe((Round(),))
    (tmp_path / "empty.py").write_text("steps = 1\n")
    with pytest.raises(Invalid, match="empty.py sets no recipe; it must end with recipe = Recipe"):
        load_recipe(tmp_path / "empty.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the recipe has no steps; give at least one [[step]] with use = NAME."),
        ("a = [", "the recipe recipe.toml is not TOML: "),
        ("[[step]]\nstorage = 'int4'", "step 1 does not say what to use; begin it with use = NAME."),
        ("[[step]]\nuse = 'squeeze'", "there is no step 'squeeze'; steps are: "),
        ("[[step]]\nuse = 'round'\nbits = 4", "step 1 (round) has no setting 'bits'; there are: patterns, storage."),
        ("[[step]]\nuse = 'round'\nstorage = 4", "storage of step 1 (round) is 4; expected text."),
        ("[[step]]\nuse = 'round'\npatterns = '*'", "patterns of step 1 (round) is '*'; expected a list, each text."),
        ("colour = 1\n[[step]]\nuse = 'round'", "the recipe has no setting 'colour'; there are: name, seed, "),
        ("seed = 'x'\n[[step]]\nuse = 'round'", "seed of the recipe is 'x'; expected a whole number."),
        ("calibration = 1\n[[step]]\nuse = 'round'", "calibration of the recipe is a table: write [calibration]"),
        (
            "[calibration]\nsamples = 'none.jsonl'\n[[step]]\nuse = 'round'",
            "the calibration samples none.jsonl do not exist; name a .jsonl file.",
        ),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(Invalid) as caught:
        load_recipe(tmp_path / "recipe.toml")
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nrecipe = 1 / 0", "recipe.py fails in line 2: ZeroDivisionError('division by zero'). Correct it."),
        ("recip e", "recipe.py fails in line 1: SyntaxError("),
        ("import nothing_of_that_name", "recipe.py fails in line 1: ModuleNotFoundError("),
    ],
)
def test_a_recipe_in_python_that_fails_is_told_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(text)
    with pytest.raises(Invalid) as caught:
        load_recipe(tmp_path / "recipe.py")
    assert caught.value.message.startswith(message)


def test_tables_become_nested_options() -> None:
    made = build(Options, {"needed": "x", "inner": {"bits": 8, "damping": 1}, "sizes": [1, 2], "limit": 3}, "here")
    assert made == Options("x", Inner(8, 1.0), "a", (1, 2), 3)
    assert build(Options, {"needed": "x", "half": "off", "table": {"k": 1}}, "here").table == {"k": 1}
    assert build(Options, {"needed": "x", "half": {"bits": 8}}, "here").half == Inner(8)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "here lacks needed; add it to the recipe."),
        ({"needed": "x", "kind": "c"}, "kind of here is 'c'; expected 'a' or 'b'."),
        ({"needed": "x", "sizes": ["a"]}, "sizes of here is 'a'; expected a whole number."),
        ({"needed": "x", "limit": True}, "limit of here is True; expected a whole number."),
        ({"needed": "x", "inner": 3}, "inner of here is 3; expected a table."),
        ({"needed": "x", "inner": {"bits": 5}}, "inner of here: bits is 5; expected 4 or 8."),
        ({"needed": "x", "half": {"bits": 5}}, "half of here: bits is 5; expected 4 or 8."),
        ({"needed": "x", "half": {"bits": "4"}}, "bits of half of here is '4'; expected a whole number."),
        ({"needed": "x", "inner": {"damping": math.nan}}, "damping of inner of here is nan; expected a finite number."),
    ],
)
def test_a_setting_of_another_kind_is_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        build(Options, table, "here")
    assert caught.value.message == message


def test_a_step_is_found_by_its_name() -> None:
    assert step_class("round") is Round
    assert options_of(Round()) == {"use": "round", "patterns": ["*"], "storage": "int4/32"}
    with pytest.raises(Invalid, match="give at least one"):
        recipe_of({"step": []}, Path())
