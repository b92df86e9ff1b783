from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foveola.bridge.context import Clocks, ContextBook, Event


def lot(value: str | None, at_s: float, arrived_s: float | None = None, source: str = "scan") -> Event:
    return Event(source, "ST04", "lot", value, at_s, at_s if arrived_s is None else arrived_s)


def test_a_clock_that_is_wrong_is_set_right_by_the_quickest_message() -> None:
    clocks = Clocks()
    # An hour slow; on the way for 0.2 to 5 seconds.
    for at, delay in ((0.0, 5.0), (10.0, 0.2), (20.0, 3.0)):
        clocks.seen("agv", at, at + 3600 + delay)
    assert clocks.offset_s("agv") == 3600.2
    assert clocks.ours("agv", 30.0) == 3630.2


def test_the_lot_at_the_time_of_speaking_counts_not_the_one_at_arrival() -> None:
    book = ContextBook()
    book.observe(lot("L1", 100.0))
    book.observe(lot("L2", 200.0))
    book.clocks.seen("voice", 50.0, 50.0)
    assert book.at("ST04", "voice", 150.0, 260.0).lot == "L1"
    assert book.at("ST04", "voice", 250.0, 260.0).lot == "L2"
    assert book.at("ST99", "voice", 250.0, 260.0).lot is None


def test_words_near_a_change_are_unsettled() -> None:
    book = ContextBook()
    book.observe(lot("L1", 100.0))
    book.observe(lot("L2", 200.0))
    assert book.at("ST04", "voice", 150.0, 150.0).settled
    assert not book.at("ST04", "voice", 201.0, 201.0).settled
    assert not book.at("ST04", "voice", 199.0, 199.0).settled


@given(st.permutations(range(8)))
def test_the_order_of_arrival_does_not_matter(order: list[int]) -> None:
    book = ContextBook()
    book.clocks.seen("scan", 0.0, 0.0)
    for index in order:
        book.observe(lot(f"L{index}", 100.0 * index, 1000.0))
    for index in range(8):
        assert book.at("ST04", "voice", 100.0 * index + 50, 100.0 * index + 50).lot == f"L{index}"


def test_old_changes_are_dropped() -> None:
    book = ContextBook(keep=3)
    for index in range(10):
        book.observe(lot(f"L{index}", 100.0 * index))
    assert book.at("ST04", "scan", 50.0, 50.0).lot is None
    assert book.at("ST04", "scan", 950.0, 950.0).lot == "L9"
