from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from foveola.bench.kept import Kept


def arguments(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"seeds": 3, "work": None, "json": False, **given})


def test_what_was_measured_once_is_not_measured_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure() -> dict[str, Any]:
        asked.append(1)
        return {"kl": 0.5, "counts": (1, 2)}

    kept = Kept(tmp_path, arguments(), "abc")
    assert not kept.has("seed 0, ours")
    for again in (kept, Kept(tmp_path, arguments(work=tmp_path, json=True), "abc")):
        assert again.of("seed 0, ours", measure) == {"kl": 0.5, "counts": [1, 2]}
        assert again.has("seed 0, ours")
    assert asked == [1]


@pytest.mark.parametrize("other", [(arguments(seeds=2), "abc"), (arguments(), "abd")])
def test_other_arguments_and_other_models_begin_anew(tmp_path: Path, other: tuple[argparse.Namespace, str]) -> None:
    Kept(tmp_path, arguments(), "abc").of("seed 0", lambda: {"kl": 1})
    assert Kept(tmp_path, *other).of("seed 0", lambda: {"kl": 2}) == {"kl": 2}


def test_what_fails_leaves_nothing_and_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        raise ValueError("interrupted")

    kept = Kept(tmp_path, arguments(), "abc")
    with pytest.raises(ValueError, match="interrupted"):
        kept.of("seed 0", fail)
    assert not kept.has("seed 0")
    nowhere = Kept(None, arguments(), "abc")
    assert [nowhere.of("a", lambda n=n: {"n": n})["n"] for n in (1, 2)] == [1, 2]  # type: ignore[misc]
    assert not nowhere.has("a")
