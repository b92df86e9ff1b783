from __future__ import annotations

from collections.abc import Sequence

from foveola.bench.contender import drive
from foveola.bench.measure import block_size, measure
from foveola.bench.sample import Block, Item, Sample
from tests.bench.making import items, sample


class Fake:
    """Notes who was asked what, in one list for all."""

    def __init__(self, name: str, calls: list[tuple[str, list[str], int]]) -> None:
        self.name = name
        self.calls = calls

    def run(self, items: Sequence[Item], concurrency: int) -> Block:
        self.calls.append((self.name, [item.text for item in items], concurrency))
        return Block(tuple(sample(0.01, item.text) for item in items), 0.02)

    def peak_memory(self) -> int:
        return 1

    def close(self) -> None:
        """Nothing to end."""


def test_contenders_take_turns_and_the_first_changes() -> None:
    calls: list[tuple[str, list[str], int]] = []
    contenders = [Fake(name, calls) for name in "ABC"]
    measure(contenders, items(2), requests=3, concurrency=(1,), warmup=2)
    assert [name for name, _, _ in calls[:3]] == ["A", "B", "C"]  # warming up
    assert "".join(name for name, _, _ in calls[3:]) == "ABCBCACAB"
    assert [texts for _, texts, _ in calls[3:]] == [["question 0"]] * 3 + [["question 1"]] * 3 + [["question 0"]] * 3


def test_series_are_paired_question_by_question_and_without_the_warm_up() -> None:
    found = measure([Fake("A", []), Fake("B", [])], items(5), requests=5, concurrency=(1, 4), warmup=3)
    assert [(one.contender, one.concurrency) for one in found] == [("A", 1), ("B", 1), ("A", 4), ("B", 4)]
    assert [len(one.samples) for one in found] == [5, 5, 8, 8]  # whole blocks: at least as many as were asked for
    for ours, theirs in (found[:2], found[2:]):
        assert [one.text for one in ours.samples] == [one.text for one in theirs.samples]
    assert found[0].wall_s == 0.1
    assert block_size(4) == 8


def test_the_warm_up_is_as_wide_as_the_concurrency() -> None:
    calls: list[tuple[str, list[str], int]] = []
    measure([Fake("A", calls)], items(9), requests=1, concurrency=(4,), warmup=1)
    assert len(calls[0][1]) == 4


def test_progress_counts_up_to_the_total() -> None:
    told: list[tuple[int, int]] = []
    measure(
        [Fake("A", []), Fake("B", [])],
        items(3),
        requests=4,
        concurrency=(1,),
        warmup=1,
        progress=lambda what, done, total: told.append((done, total)),
    )
    assert told[-1] == (8, 8)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_the_closed_loop_keeps_the_order_of_the_items() -> None:
    def ask(item: Item) -> Sample:
        return sample(0.01, item.text)

    for concurrency in (1, 3):
        block = drive(ask, items(7), concurrency)
        assert [one.text for one in block.samples] == [f"question {index}" for index in range(7)]
        assert block.wall_s > 0
