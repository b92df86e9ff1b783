"""KV slots: active rows stay contiguous, rows have one owner, moves carry every owner's data along."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.engine.slots import Move, Slots


def copied(memory: list[str | None], moves: list[tuple[Move, str]]) -> None:
    """What the runner's buffers would hold after these moves."""
    for move, owner in moves:
        assert memory[move.source] == owner
        memory[move.target] = memory[move.source]


@given(st.integers(1, 5), st.lists(st.integers(0, 11), max_size=80))
def test_rows_stay_contiguous_and_moves_keep_the_data(count: int, choices: list[int]) -> None:
    slots: Slots[str] = Slots(count)
    memory: list[str | None] = [None] * (count + 1)
    filling: list[str] = []
    running: list[str] = []
    for number, choice in enumerate(choices):
        if filling and choice % 3 == 0:
            owner = filling.pop(choice % len(filling))
            copied(memory, slots.promote(owner))
            running.append(owner)
        elif (running or filling) and (choice % 3 == 1 or not slots.free):
            group = running or filling
            owner = group.pop(choice % len(group))
            copied(memory, slots.release(owner))
        else:
            owner = f"request {number}"
            row = slots.acquire(owner)
            assert row == len(running) + len(filling)
            memory[row] = owner
            filling.append(owner)
        assert slots.free == count - len(running) - len(filling)
        assert set(slots.running) == set(running)
        assert set(slots.owners) == {*running, *filling}
        assert slots.owners[: len(running)] == slots.running
        assert [memory[slots.row(owner)] for owner in slots.owners] == list(slots.owners)


def test_the_last_rows_move_into_the_gaps() -> None:
    slots: Slots[str] = Slots(4)
    assert [slots.acquire(owner) for owner in ("a", "b", "c", "d")] == [0, 1, 2, 3]
    assert slots.promote("a") == slots.promote("b") == []
    assert slots.release("a") == [(Move(1, 0), "b"), (Move(3, 1), "d")]
    assert slots.owners == ("b", "d", "c")
    assert slots.release("c") == []


def test_a_later_prompt_may_be_filled_first() -> None:
    slots: Slots[str] = Slots(2)
    slots.acquire("long")
    slots.acquire("short")
    assert slots.promote("short") == [(Move(1, 2), "short"), (Move(0, 1), "long"), (Move(2, 0), "short")]
    assert slots.running == ("short",)
    with pytest.raises(LookupError, match="runs already"):
        slots.promote("short")


def test_misuse_is_an_error() -> None:
    slots: Slots[str] = Slots(1)
    slots.acquire("a")
    with pytest.raises(LookupError, match="every slot has an owner"):
        slots.acquire("b")
    slots.release("a")
    with pytest.raises(LookupError, match="holds no slot"):
        slots.release("a")
    with pytest.raises(ValueError, match="at least one slot, got 0"):
        Slots(0)


def test_an_owner_has_one_row() -> None:
    slots: Slots[str] = Slots(2)
    slots.acquire("a")
    with pytest.raises(LookupError, match="already holds a slot"):
        slots.acquire("a")
