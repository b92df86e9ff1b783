from __future__ import annotations

import hashlib

import pytest

from foveola.guard.allowed import NotListed, allowed
from foveola.guard.verdict import ROUTE, Verdict
from tests.guard.answers import asking, pieces_of, saying

KNOWN, OTHER = b"a picture", b"another"
LISTING = {hashlib.sha256(KNOWN).digest()}
MODES = {"/audit": "audit", "/off": "off"}


async def verdicts(route: str, *images: bytes) -> list[Verdict]:
    told: list[Verdict] = []
    ROUTE.set(route)
    answer = allowed(saying("yes"), lambda: [set(), LISTING], lambda route: MODES.get(route, "enforce"), told.append)
    try:
        assert [piece.text for piece in await pieces_of(answer, asking("?", *images))] == ["yes", ""]
    except NotListed:
        assert told[-1].outcome == "refused"
    return told


async def test_a_known_picture_is_answered() -> None:
    assert await verdicts("/a", KNOWN, KNOWN) == [Verdict("allowlist", "passed", "job-1", "/a")]


async def test_one_unknown_picture_is_enough_to_refuse() -> None:
    [verdict] = await verdicts("/a", KNOWN, OTHER)
    assert verdict.outcome == "refused"
    assert verdict.detail == {"sha256": hashlib.sha256(OTHER).hexdigest()}


async def test_an_audit_tells_and_answers() -> None:
    [verdict] = await verdicts("/audit", OTHER)
    assert verdict.outcome == "unlisted"


async def test_off_asks_nobody_and_words_alone_need_no_list() -> None:
    assert await verdicts("/off", OTHER) == []
    assert await verdicts("/a") == []


async def test_the_refusal_says_what_to_do() -> None:
    answer = allowed(saying("yes"), lambda: [LISTING], lambda route: "enforce")
    with pytest.raises(NotListed, match="is not on the allow-list; register its bytes, exactly as they are sent"):
        await pieces_of(answer, asking("?", OTHER))
    assert NotListed("").status == 403
