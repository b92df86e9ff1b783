from __future__ import annotations

from pathlib import Path

import pytest

from foveola.bench.keeping import kept


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
