"""The mailbox: merging, one wake-up for many pieces, the error after the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.engine.mailbox import Mailbox
from foveola.exchange import Piece, Unavailable, Usage


@given(st.lists(st.booleans(), max_size=30))
def test_nothing_is_lost_or_woken_twice_however_the_reader_fetches(reads: list[bool]) -> None:
    woken: list[int] = []
    mailbox = Mailbox(lambda: woken.append(1))
    text, tokens, wanted = "", 0, ""
    for number, reads_now in enumerate(reads):
        before = len(woken)
        mailbox.put(Piece(f"{number},", 2, -0.5))
        wanted += f"{number},"
        assert len(woken) - before == (1 if number == 0 or reads[number - 1] else 0)
        if reads_now:
            piece = mailbox.take()
            assert piece is not None
            text, tokens = text + piece.text, tokens + piece.tokens
            assert mailbox.take() is None
    last = mailbox.take()
    if last is not None:
        text, tokens = text + last.text, tokens + last.tokens
    assert text == wanted
    assert tokens == 2 * len(reads)


def test_merged_pieces_add_up_and_keep_the_end() -> None:
    mailbox = Mailbox(lambda: None)
    usage = Usage(1, 0, 3)
    mailbox.put(Piece("a", 1, -1.0))
    mailbox.put(Piece("b", 2, -0.25, finish="stop", usage=usage))
    assert mailbox.take() == Piece("ab", 3, -1.25, finish="stop", usage=usage)
    assert mailbox.take() is None


def test_an_error_comes_after_the_pieces_and_wakes_the_reader() -> None:
    woken: list[int] = []
    mailbox = Mailbox(lambda: woken.append(1))
    mailbox.put(Piece("a", 1))
    mailbox.fail(Unavailable("over"))
    assert len(woken) == 1
    assert mailbox.take() == Piece("a", 1)
    for _ in range(2):
        with pytest.raises(Unavailable, match="over"):
            mailbox.take()


def test_an_error_alone_wakes_the_reader() -> None:
    woken: list[int] = []
    mailbox = Mailbox(lambda: woken.append(1))
    mailbox.fail(Unavailable("over"))
    assert woken == [1]


def test_who_wants_the_whole_answer_is_woken_for_its_end_and_now_and_then() -> None:
    woken: list[int] = []
    now = 0.0
    mailbox = Mailbox(lambda: woken.append(1), pause_s=1.0, clock=lambda: now)
    mailbox.put(Piece("a", 1))
    now = 0.9
    mailbox.put(Piece("b", 1))
    assert not woken
    now = 1.5
    mailbox.put(Piece("c", 1))
    assert len(woken) == 1
    assert mailbox.take() == Piece("abc", 3)
    now = 2.0
    mailbox.put(Piece("d", 1))
    assert len(woken) == 1
    mailbox.put(Piece("e", 1, finish="stop", usage=Usage(1, 0, 5)))
    assert len(woken) == 2
    assert mailbox.take() == Piece("de", 2, finish="stop", usage=Usage(1, 0, 5))


def test_an_error_does_not_wait_for_the_pause() -> None:
    woken: list[int] = []
    mailbox = Mailbox(lambda: woken.append(1), pause_s=1.0)
    mailbox.put(Piece("a", 1))
    mailbox.fail(Unavailable("over"))
    assert woken == [1]


def test_cancelling_is_seen_by_the_other_side() -> None:
    mailbox = Mailbox(lambda: None)
    assert not mailbox.cancelled
    mailbox.cancel()
    mailbox.cancel()
    assert mailbox.cancelled
