from __future__ import annotations

import pytest

from foveola.guard.verdict import ROUTE, Verdict
from foveola.guard.worded import worded
from foveola.guard.wordfilter import Action
from foveola.guard.words import Words
from tests.guard.answers import USAGE, pieces_of, saying
from tests.guard.lists import words_of

ROUTES: dict[str, Action | None] = {"/off": None, "/stop": "stop", "/drop": "drop"}


@pytest.fixture(scope="module")
def words() -> Words:
    return words_of(["bomb", "炸弹"])


def action_of(route: str) -> Action | None:
    return ROUTES.get(route, "mask")


async def test_pieces_are_merged_and_nothing_of_what_they_cost_is_lost(words: Words) -> None:
    told: list[Verdict] = []
    answer = worded(saying("a ", "bo", "mb", " and ", "bo", "x"), lambda: words, action_of, told.append)
    pieces = await pieces_of(answer)
    assert [piece.text for piece in pieces] == ["a ", "███", "█ and ", "box", ""]
    assert sum(piece.tokens for piece in pieces) == 6
    assert sum(piece.logprob for piece in pieces) == -3.0
    assert (pieces[-1].finish, pieces[-1].usage) == ("stop", USAGE)
    assert told == [Verdict("words", "masked", "job-1", "", {"hits": 1, "version": words.version})]


async def test_what_was_held_back_leaves_with_the_last_piece(words: Words) -> None:
    pieces = await pieces_of(worded(saying("炸"), lambda: words, action_of))
    assert [piece.text for piece in pieces] == ["炸"]
    assert pieces[0].finish == "stop"


async def test_a_stop_ends_the_text_and_keeps_the_usage(words: Words) -> None:
    ROUTE.set("/stop")
    pieces = await pieces_of(worded(saying("so: b", "omb", " more"), lambda: words, action_of))
    assert "".join(piece.text for piece in pieces) == "so: "
    assert (pieces[-1].finish, pieces[-1].usage) == ("content_filter", USAGE)
    assert all(piece.finish is None for piece in pieces[:-1])


async def test_a_route_has_its_own_setting(words: Words) -> None:
    answer = worded(saying("bomb!"), lambda: words, action_of)
    texts = {}
    for route in ("/off", "/drop", "/other"):
        ROUTE.set(route)
        texts[route] = "".join(piece.text for piece in await pieces_of(answer))
    assert texts == {"/off": "bomb!", "/drop": "!", "/other": "████!"}


async def test_tokens_told_one_by_one_spell_nothing_that_was_removed(words: Words) -> None:
    pieces = await pieces_of(worded(saying("a", "bo", "mb", "c", "bo", "x", logprobs=True), lambda: words, action_of))
    told = [one.token for piece in pieces for one in piece.logprobs]
    assert told == [b"a", b"", b"", b"", b"bo", b"x"]
    assert all(not one.top and one.logprob == -0.5 for piece in pieces for one in piece.logprobs)


async def test_leaving_early_closes_the_engines_iterator(words: Words) -> None:
    iterator = worded(saying("a", "b", "c"), lambda: words, action_of)
    pieces = await pieces_of(iterator)
    assert pieces[-1].finish == "stop"
