"""Streams of disguised banned words, as in ``bench/g2_wordfilter.py`` but few: no leak, no dependence on chunks."""

from __future__ import annotations

import random

import pytest
from bench.g2_wordfilter import banned, interleaved, leaks_of, text_of

from foveola.guard.wordfilter import ACTIONS, Action, scrub
from tests.guard.lists import words_of


@pytest.mark.parametrize("action", ACTIONS)
def test_interleaved_streams_leak_nothing(action: Action) -> None:
    rng = random.Random(11)
    words = banned(2000, rng)
    compiled = words_of(words)
    forms = {compiled.normal(word) for word in words}
    texts = [text_of(list(words), rng, 4) for _ in range(120)]
    left = interleaved(compiled, texts, action, rng)
    assert left == [scrub(compiled, text, action) for text in texts]
    assert not any(leaks_of(compiled, forms, max(map(len, forms)), text) for text in left)
    assert sum(one != text for one, text in zip(left, texts, strict=True)) > 60
