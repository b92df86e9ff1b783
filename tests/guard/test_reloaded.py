from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from foveola.exchange import Damaged
from foveola.guard.reloaded import ReloadedFile
from foveola.guard.words import load_words, write_words
from tests.guard.lists import compiled


def test_a_new_file_is_loaded_beside_the_old_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.words"
    write_words(compiled(["abc"]), path)
    waiting: list[threading.Thread] = []
    file = ReloadedFile(path, load_words, start=waiting.append)
    first = file.current()
    assert not waiting
    write_words(compiled(["abc", "other"]), path)
    assert file.current() is first and file.current() is first  # until the new one is ready
    [reload] = waiting
    with caplog.at_level(logging.WARNING):
        reload.run()
    assert file.current().count == 2
    assert f"a.words is now version {file.current().version}" in caplog.text
    assert len(waiting) == 1


def test_a_damaged_new_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.words"
    write_words(compiled(["abc"]), path)
    file = ReloadedFile(path, load_words, start=threading.Thread.run)
    first = file.current()
    path.write_bytes(b"rubbish")
    file.current()
    assert file.current() is first
    assert "stays at version" in caplog.text
    path.unlink()
    assert file.current() is first


def test_a_server_does_not_start_without_its_list(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="a.words cannot be read"):
        ReloadedFile(tmp_path / "a.words", load_words)
