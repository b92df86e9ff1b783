from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from foveola.exchange import Damaged, Request
from foveola.guard.allowed import NotListed
from foveola.guard.digests import write_digests
from foveola.guard.guards import Guards, _never_older
from foveola.guard.options import GuardOptions
from foveola.guard.verdict import ROUTE, Verdict
from foveola.guard.words import write_words
from tests.guard.answers import asking, pieces_of, saying
from tests.guard.lists import compiled


def test_without_settings_nothing_is_wrapped() -> None:
    answer = saying("bomb")
    guards = Guards.open(GuardOptions())
    assert guards.around(answer) is answer
    assert guards.scrub("bomb") == "bomb"


async def test_all_that_is_set_is_around_the_answer(tmp_path: Path) -> None:
    write_words(compiled(["bomb"]), tmp_path / "w")
    row = np.frombuffer(hashlib.sha256(b"picture").digest(), np.uint8)
    write_digests(tmp_path / "d", row[None], name="d", version=1)
    told: list[Verdict] = []
    options = GuardOptions(
        words=tmp_path / "w", allowlist="enforce", allowlist_file=tmp_path / "d", words_routes="/plain=off"
    )
    guards = Guards.open(options)
    answer = guards.around(saying("a bo", "mb"), told.append)
    ROUTE.set("/v1/vlm/invoke")
    assert "".join(piece.text for piece in await pieces_of(answer, asking("?", b"picture"))) == "a ████"
    assert [(one.guard, one.outcome) for one in told] == [("allowlist", "passed"), ("words", "masked")]
    ROUTE.set("/plain")
    assert "".join(piece.text for piece in await pieces_of(answer, asking("?", b"picture"))) == "a bomb"
    assert guards.scrub("a b-o-m-b") == "a ███████"


async def test_counting_asks_the_allow_list_too(tmp_path: Path) -> None:
    async def count(request: Request) -> int:
        return len(request.turns[0].images)

    assert Guards.open(GuardOptions()).counting(count) is count
    row = np.frombuffer(hashlib.sha256(b"picture").digest(), np.uint8)
    write_digests(tmp_path / "d", row[None], name="d", version=1)
    told: list[Verdict] = []
    options = GuardOptions(allowlist="enforce", allowlist_file=tmp_path / "d", allowlist_routes="/free=off")
    counting = Guards.open(options).counting(count, told.append)
    ROUTE.set("/v1/vlm/count")
    assert await counting(asking("?", b"picture")) == 1
    with pytest.raises(NotListed, match="is not on the allow-list"):
        await counting(asking("?", b"stranger"))
    assert [(one.guard, one.outcome, one.route) for one in told] == [
        ("allowlist", "passed", "/v1/vlm/count"),
        ("allowlist", "refused", "/v1/vlm/count"),
    ]
    ROUTE.set("/free")
    assert await counting(asking("?", b"stranger")) == 1


def test_a_list_of_digests_never_grows_older(tmp_path: Path) -> None:
    load = _never_older(None)
    none = np.zeros((0, 32), np.uint8)
    for name, version in (("old", 1), ("new", 2)):
        write_digests(tmp_path / name, none, name="a", version=version)
    assert load(tmp_path / "new").version == 2
    with pytest.raises(Damaged, match="old has version 1, older than 2 in force"):
        load(tmp_path / "old")
