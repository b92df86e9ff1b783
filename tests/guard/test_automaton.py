from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.guard.automaton import Tables, Walker, build

WORDS = st.dictionaries(st.text("abc弹", min_size=1, max_size=6), st.booleans(), max_size=12)


@settings(deadline=None, max_examples=100)
@given(WORDS, st.text("abc弹x", max_size=40))
def test_every_state_is_what_its_definition_says(words: dict[str, bool], text: str) -> None:
    tables = build(words)
    walker = Walker(tables)
    prefixes = {""} | {word[:length] for word in words for length in range(len(word) + 1)}
    growing = {word[:length] for word in words for length in range(len(word))}
    state = 0
    for end in range(1, len(text) + 1):
        state = walker.step(state, text[end - 1])
        suffixes = [text[start:end] for start in range(end + 1)]  # longest first, the empty one last
        assert walker.depth[state] == next(len(one) for one in suffixes if one in prefixes)
        assert walker.hold[state] == next((len(one) for one in suffixes if one in growing), 0)
        assert walker.cover[state] == next((len(one) for one in suffixes if one in words and not words[one]), 0)
        node, found = walker.whole[state], []
        while node:
            found.append(walker.depth[node])
            node = walker.whole[walker.fail[node]]
        assert found == [len(one) for one in suffixes if words.get(one)]


def test_no_words_is_a_list_too() -> None:
    assert Walker(build({})).step(0, "a") == 0


@pytest.mark.parametrize(
    ("table", "value"), [("fail", 2), ("fail", -1), ("first", 9), ("hold", 9), ("cover", 300), ("whole", 7)]
)
def test_tables_that_would_lead_astray_are_refused(table: str, value: int) -> None:
    good = build({"ab": False, "b": True})
    array = getattr(good, table).copy()
    array[1] = value
    with pytest.raises(ValueError):
        replace(good, **{table: array}).check()
    with pytest.raises(ValueError):
        Tables(*(np.zeros(0, np.int32) for _ in range(7))).check()
