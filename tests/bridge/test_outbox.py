from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola.bridge.outbox import Outbox
from foveola.exchange import Busy, Invalid
from tests.bridge.making import payload


def test_commands_are_numbered_by_key_and_known_again(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db")
    assert box.put(payload("a"))
    assert box.put(payload("b"))
    assert box.put(payload("c", entities={"lot": "L9999"}))
    assert not box.put(payload("a"))
    due = box.due(10, now_s=0.0, again_after_s=5.0)
    assert [(one.id, one.key, one.number) for one in due] == [("a", "L2417", 1), ("b", "L2417", 2), ("c", "L9999", 1)]
    value = json.loads(due[1].value)
    assert (value["idempotency_key"], value["number"], value["epoch"]) == ("b", 2, box.epoch)


def test_what_is_not_confirmed_is_due_again(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db")
    box.put(payload("a"))
    box.put(payload("b"))
    box.sent([1, 2], 100.0)
    assert box.due(10, now_s=104.0, again_after_s=5.0) == []
    box.settled(["a"])
    assert [one.id for one in box.due(10, now_s=105.0, again_after_s=5.0)] == ["b"]
    box.settled(["b"], failed=["b"])
    assert box.counts() == {"waiting": 0, "sent": 0, "confirmed": 1, "failed": 1}
    box.sent([1, 2], 200.0)
    assert box.counts()["sent"] == 0


def test_it_survives_being_closed(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db")
    epoch = box.epoch
    box.put(payload("a"))
    box.close()
    again = Outbox(tmp_path / "out.db")
    assert again.epoch == epoch
    again.put(payload("b"))
    assert [one.number for one in again.due(10, now_s=0.0, again_after_s=5.0)] == [1, 2]


def test_only_what_may_be_sent_is_taken(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db", max_open=1)
    for verdict in ("review", "denied", "ignore"):
        with pytest.raises(Invalid, match=f"the verdict '{verdict}' is never sent"):
            box.put(payload("a", verdict=verdict))
    box.put(payload("a"))
    with pytest.raises(Busy, match="1 commands wait for the MES"):
        box.put(payload("b"))
    assert sum(box.counts().values()) == 1


def test_old_confirmed_commands_are_forgotten(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db")
    box.put_values((f"c{i}", "L1", {}) for i in range(10))
    box.settled([f"c{i}" for i in range(10)])
    assert box.forget_confirmed(keep=3) == 7
    assert box.counts()["confirmed"] == 3
