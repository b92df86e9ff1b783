"""Compiled lists for tests, made quickly: the folding table is made once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from unittest import mock

import pytest

from foveola.guard import fold
from foveola.guard import words as module
from foveola.guard.words import Words, compile_words, parse_words


@lru_cache
def _table() -> dict[str, str]:
    return fold.fold_table(module._simplified())


def compiled(words: Mapping[str, bool] | list[str]) -> bytes:
    """The file of these words (a list: all of them count anywhere)."""
    pytest.importorskip("opencc", reason="the guard's door is not installed: pip install 'foveola[guard]'")
    given = words if isinstance(words, Mapping) else dict.fromkeys(words, False)
    table = _table()
    with mock.patch.object(module, "fold_table", lambda simplified: table):
        return compile_words(given)


def words_of(words: Mapping[str, bool] | list[str]) -> Words:
    return parse_words(compiled(words), "test.words")
