"""KV slots: active rows stay contiguous, rows have one owner, moves carry every owner's data along."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.engine.slots import Move, Slots


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_rows_stay_contiguous_and_moves_keep_the_data(count: int, choices: list[int]) -> None:
    slots: Slots[str] = Slots(count)
    memory: list[str | None] = [None] * count  # what each row holds, as the runner's buffers would
    alive: list[str] = []
    for number, choice in enumerate(choices):
        if alive and (choice % 2 or not slots.free):
            owner = alive.pop(choice % len(alive))
            move = slots.release(owner)
            if move:
                memory[move.target] = memory[move.source]
        else:
            owner = f"request {number}"
            row = slots.acquire(owner)
            assert row == len(alive)
            memory[row] = owner
            alive.append(owner)
        assert slots.free == count - len(alive)
        assert set(slots.owners) == set(alive)
        assert [memory[slots.row(owner)] for owner in slots.owners] == list(slots.owners)


def test_the_last_row_moves_into_the_gap() -> None:
    slots: Slots[str] = Slots(3)
    assert [slots.acquire(owner) for owner in ("a", "b", "c")] == [0, 1, 2]
    assert slots.release("a") == Move(source=2, target=0)
    assert slots.owners == ("c", "b")
    assert slots.release("b") is None


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
