from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.bridge.mes import BadCommand, Ledger, parse, write_effect
from foveola.exchange import Invalid


def command(key: str, number: int, **fields: Any) -> dict[str, Any]:
    return {
        "schema": "foveola.bridge.command", "version": 1, "resolved_intent": "REWORK", "epoch": "e", "key": key,
        "number": number, "idempotency_key": f"{key}-{number}", **fields,
    }  # fmt: skip


def take_all(ledger: Ledger, commands: list[dict[str, Any]]) -> list[str]:
    settled = []
    for one in commands:
        ledger.base.execute("BEGIN")
        settled += [done["idempotency_key"] for done, _ in ledger.take(one, 0.0)]
        ledger.base.execute("COMMIT")
    return settled


def effects(ledger: Ledger) -> list[tuple[str, int]]:
    return [tuple(row) for row in ledger.base.execute("SELECT key, number FROM effects ORDER BY position")]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_any_order_and_any_repetition_gives_every_effect_once_in_order(seed: int) -> None:
    draw = random.Random(seed)
    commands = [command(key, number) for key in "ab" for number in range(1, 8)]
    commands += draw.sample(commands, 5)
    draw.shuffle(commands)
    ledger = Ledger(Path(":memory:"))
    settled = take_all(ledger, commands)
    for key in "ab":
        assert [number for one, number in effects(ledger) if one == key] == list(range(1, 8))
    assert set(settled) == {one["idempotency_key"] for one in commands}
    ledger.base.close()


def test_an_urgent_command_does_not_wait(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "mes.db")
    take_all(ledger, [command("a", 3, urgent=True)])
    assert effects(ledger) == [("a", 3)]
    take_all(ledger, [command("a", 2), command("a", 1), command("a", 4)])
    assert effects(ledger) == [("a", 3), ("a", 1), ("a", 2), ("a", 4)]


def test_a_command_before_a_missing_one_waits_and_is_told_of(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "mes.db")
    assert take_all(ledger, [command("a", 2)]) == []
    assert effects(ledger) == []
    assert [one["number"] for one in ledger.overdue(1.0)] == [2]
    assert ledger.overdue(0.0) == []


def test_a_failing_effect_is_undone_and_gives_its_turn_away(tmp_path: Path) -> None:
    tries = []

    def effect(base: sqlite3.Connection, one: dict[str, Any]) -> None:
        write_effect(base, one)
        if one["number"] == 1:
            tries.append(1)
            raise OSError("the machine does not answer")
        if one["number"] == 2:
            raise Invalid("The MES knows no such lot.")

    ledger = Ledger(tmp_path / "mes.db", effect)
    ledger.base.execute("BEGIN")
    reasons = [reason for number in (1, 2, 3) for _, reason in ledger.take(command("a", number), 0.0)]
    ledger.base.execute("COMMIT")
    assert reasons == ["carrying it out failed 3 times", "The MES knows no such lot.", None]
    assert len(tries) == 3
    assert effects(ledger) == [("a", 3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other"}, "not of the schema foveola.bridge.command"),
        ({"version": 2}, "has version 2; understood here is 1"),
        ({"number": "1"}, "`number` is '1'; expected int"),
        ({"key": None}, "`key` is None; expected str"),
        ({"number": 2**63}, "has more than 63 bits"),  # would end the consumer, and every one after it
        ({"key": "\ud800"}, "holds broken characters"),
    ],
)
def test_what_is_no_command_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadCommand) as refused:
        parse(json.dumps({**command("a", 1), **change}).encode())
    assert message in refused.value.message
    for value in (b"{", b"\xff", b"[]", b"[" * 100_000, b"1" * 10_000, None):
        with pytest.raises(BadCommand, match="The message is not"):
            parse(value)
