from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from foveola.bench.kept import Kept, kept


def arguments(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"seeds": 3, "work": None, "json": False, **given})


def test_what_was_measured_once_is_not_measured_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure() -> dict[str, Any]:
        asked.append(1)
        return {"kl": 0.5, "counts": (1, 2)}

    for given in (arguments(), arguments(work=tmp_path, json=True), arguments(seeds=2)):
        assert Kept(tmp_path, given, "abc").of("seed 0, ours", measure) == {"kl": 0.5, "counts": [1, 2]}
    assert asked == [1]


@pytest.mark.parametrize("other", [(arguments(steps=2), "abc"), (arguments(), "abd")])
def test_other_arguments_and_other_models_begin_anew(tmp_path: Path, other: tuple[argparse.Namespace, str]) -> None:
    Kept(tmp_path, arguments(), "abc").of("seed 0", lambda: {"kl": 1})
    assert Kept(tmp_path, *other).of("seed 0", lambda: {"kl": 2}) == {"kl": 2}


def test_what_fails_leaves_nothing_and_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        raise ValueError("interrupted")

    with pytest.raises(ValueError, match="interrupted"):
        Kept(tmp_path, arguments(), "abc").of("seed 0", fail)
    assert list(tmp_path.rglob("*.*")) == []
    nowhere = Kept(None, arguments(), "abc")
    assert [nowhere.of("a", lambda n=n: {"n": n})["n"] for n in (1, 2)] == [1, 2]  # type: ignore[misc]
    assert list(tmp_path.rglob("*.*")) == []


def test_what_was_made_once_is_not_made_again(tmp_path: Path) -> None:
    def never() -> dict[str, int]:
        raise AssertionError("made again")

    path = tmp_path / "part.json"
    assert kept(path, lambda: {"points": 3}) == {"points": 3}
    assert kept(path, never) == {"points": 3}
    assert [one.name for one in tmp_path.iterdir()] == ["part.json"]


def test_what_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        kept(tmp_path / "part.json", lambda: {"points": 1 // 0})
    assert list(tmp_path.iterdir()) == []
