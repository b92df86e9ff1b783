from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.guard.fold import BARRIER, joins_words
from foveola.guard.wordfilter import ACTIONS, Action, WordStream, scrub
from foveola.guard.words import Words
from tests.guard.lists import words_of

LIST = {"abc": False, "bc d": False, "ab": False, "ca": False, "炸弹": False, "弹药": False, "cat": True, "at": True}
ALPHABET = "abcdtABАΒ炸弹彈藥药 -.\u200b\u0301x█ﬀ0"


@pytest.fixture(scope="module")
def words() -> Words:
    return words_of(LIST)


def occurrences(words: Words, text: str) -> list[tuple[int, int]]:
    """Characters (first, last + 1) of every banned word in ``text``, by looking everywhere: the slow, plain way."""
    spans, form = [], ""
    owner: list[int] = []
    for index, character in enumerate(text):
        part = words.normal(character)
        owner += [index] * len(part)
        form += part
    for word, whole in LIST.items():
        wanted = words.normal(word)
        for start in range(len(form) - len(wanted) + 1):
            if form[start : start + len(wanted)] != wanted:
                continue
            first, last = owner[start], owner[start + len(wanted) - 1]
            if whole:
                begins = start == 0 or owner[start - 1] != first
                ends = start + len(wanted) == len(form) or owner[start + len(wanted)] != last
                before = first > 0 and joins_words(text[first - 1])
                after = last + 1 < len(text) and joins_words(text[last + 1])
                if not begins or not ends or before or after:
                    continue
            spans.append((first, last + 1))
    return spans


def chunked(words: Words, text: str, cuts: list[int], action: Action) -> tuple[str, list[str]]:
    stream = WordStream(words, action)
    out, places = [], sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, end in pairwise(places):
        out.append(stream.feed(text[start:end]))
    out.append(stream.end())
    return "".join(out), out


@settings(deadline=None, max_examples=400)
@given(st.text(ALPHABET, max_size=30), st.lists(st.integers(0, 30), max_size=12), st.sampled_from(ACTIONS))
def test_any_chunking_gives_the_same_and_nothing_banned_leaves(
    words: Words, text: str, cuts: list[int], action: Action
) -> None:
    whole = scrub(words, text, action)
    assert chunked(words, text, cuts, action)[0] == whole
    assert not occurrences(words, whole)
    seen = text.replace(BARRIER, "▇")
    spans = occurrences(words, seen)
    if action == "mask":
        covered = {index for first, last in spans for index in range(first, last)}
        assert whole == "".join(BARRIER if i in covered else c for i, c in enumerate(seen))
    if not spans:
        assert whole == seen
    if action == "stop" and spans:
        assert seen.startswith(whole) and len(whole) <= min(first for first, _ in spans)


@settings(deadline=None, max_examples=150)
@given(st.text(ALPHABET, max_size=20))
def test_exactly_what_may_still_become_a_word_is_held_back(words: Words, text: str) -> None:
    """The longest suffix whose normal form begins a word that it does not end; a whole word waits for what follows."""
    stream = WordStream(words, "mask")
    left = stream.feed(text)
    seen = text.replace(BARRIER, "▇")
    growing = {words.normal(word)[:length] for word in LIST for length in range(1, len(words.normal(word)))}
    form = words.normal(seen)
    longest = max((length for length in range(len(form) + 1) if form[len(form) - length :] in growing), default=0)
    kept = 0
    while len(words.normal(seen[len(seen) - kept :])) < longest:
        kept += 1
    waiting = [len(seen) - first for first, last in occurrences(words, seen) if last == len(seen)]
    assert len(left) + stream.held == len(text)
    assert stream.held in {kept, *waiting} and stream.held >= kept


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a 炸 彈!", "a ███!"),
        ("abcd", "████"),
        ("the CAT sat", "the ███ sat"),
        ("category", "██tegory"),
        ("是cat吗", "是███吗"),
        ("t a b", "t ███"),
        ("a█b", "███"),
        ("█", "▇"),
    ],
)
def test_what_a_mask_looks_like(words: Words, text: str, left: str) -> None:
    assert scrub(words, text) == left


def test_dropping_a_word_never_makes_another(words: Words) -> None:
    assert scrub(words, "aabb", "drop") == "██"
    assert scrub(words, "x ab y", "drop") == "x  y"


@pytest.mark.parametrize("action", ACTIONS)
def test_a_word_strewn_over_many_blanks_is_found(words: Words, action: Action) -> None:
    text = "x a" + " " * 300 + "b y"
    out, parts = chunked(words, text, list(range(0, len(text), 2)), action)
    assert out == {"mask": "x " + BARRIER * 302 + " y", "drop": "x  y", "stop": "x "}[action]
    assert parts[-2:] != ["", ""] or action == "stop"


def test_after_a_stop_nothing_leaves(words: Words) -> None:
    stream = WordStream(words, "stop")
    assert stream.feed("good 炸") == "good "
    assert stream.feed("弹 more") == ""
    assert (stream.stopped, stream.hits, stream.feed("x"), stream.end()) == (True, 1, "", "")


def test_interleaved_streams_do_not_know_each_other(words: Words) -> None:
    one, other = WordStream(words, "mask"), WordStream(words, "mask")
    out = [one.feed("a"), other.feed("b"), one.feed("x"), other.feed("cx")]
    assert "".join([out[0], out[2], one.end()]) == "ax"
    assert "".join([out[1], out[3], other.end()]) == "bcx"
