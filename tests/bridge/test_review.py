from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from foveola.bridge.corpus import load_corpus, write_corpus
from foveola.bridge.intents import load_intents
from foveola.bridge.outbox import Outbox
from foveola.bridge.review import NoReview, NotAllowed, ReviewQueue, Taken
from foveola.bridge.sources import load_sources
from foveola.exchange import Damaged, Invalid
from tests.bridge.making import payload, plant


class Desk:
    """A queue with a clock that the test turns."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.folder = folder
        intents = load_intents()
        self.outbox = Outbox(folder / "out.db")
        self.queue = ReviewQueue(
            folder / "reviews.db", intents, load_sources(plant(folder), intents), self.outbox,
            expire_s=600.0, claim_s=60.0, clock=lambda: self.now,
        )  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def asked(id: str = "p1", src: str = "ocr-01", **fields: object) -> object:
    return payload(id, verdict="review", audit_required=True, src_id=src, **fields)


def test_a_decision_is_sent_once_and_becomes_a_label(desk: Desk) -> None:
    assert desk.queue.put(asked())
    assert not desk.queue.put(asked())
    desk.queue.claim("p1", "anna")
    decided = desk.queue.decide("p1", "anna", "LOT_HOLD", lot="L3000", reason="asked the line")
    assert decided.state == "decided"
    assert desk.outbox.due(9, now_s=0.0, again_after_s=1.0)[0].key == "L3000"
    with pytest.raises(Taken, match="is decided already"):
        desk.queue.decide("p1", "anna", "LOT_HOLD")
    assert desk.queue.send_decided() == 0
    assert sum(desk.outbox.counts().values()) == 1
    path = desk.folder / "labels.txt"
    path.write_text(write_corpus(desk.queue.labelled()), encoding="utf-8")
    (label,) = load_corpus(path)
    assert (label.text, label.intent, label.lot, label.kind) == ("返工", "LOT_HOLD", "L3000", "ocr")


def test_a_decision_that_was_not_sent_before_a_crash_is_sent_after_it(desk: Desk) -> None:
    desk.queue.put(asked())
    desk.queue.claim("p1", "anna")
    desk.queue.decide("p1", "anna", "REWORK")
    with sqlite3.connect(desk.folder / "reviews.db") as base:
        base.execute("UPDATE reviews SET sent = 0")  # as if the power had gone in between
    assert Desk(desk.folder).queue.counts()["decided"] == 1
    assert sum(desk.outbox.counts().values()) == 1


def test_nothing_is_sent_for_a_no(desk: Desk) -> None:
    desk.queue.put(asked())
    desk.queue.claim("p1", "anna")
    desk.queue.decide("p1", "anna", "NONE")
    assert sum(desk.outbox.counts().values()) == 0


def test_one_person_at_a_time(desk: Desk) -> None:
    desk.queue.put(asked())
    with pytest.raises(Taken, match="Claim the review p1 before"):
        desk.queue.decide("p1", "anna", "NONE")
    desk.queue.claim("p1", "anna")
    with pytest.raises(Taken, match="held by anna"):
        desk.queue.claim("p1", "bert")
    assert desk.queue.list() == []
    desk.now += 61
    assert [one.id for one in desk.queue.list()] == ["p1"]
    desk.queue.claim("p1", "bert")
    with pytest.raises(Taken):
        desk.queue.decide("p1", "anna", "NONE")
    with pytest.raises(NoReview, match="There is no review 'p9'"):
        desk.queue.claim("p9", "bert")


def test_what_nobody_decides_expires_without_effect(desk: Desk) -> None:
    desk.queue.put(asked())
    desk.now += 601
    assert desk.queue.expire() == 1
    with pytest.raises(Taken, match="is expired already"):
        desk.queue.claim("p1", "anna")
    assert desk.queue.counts() == {"open": 0, "claimed": 0, "decided": 0, "expired": 1}
    assert sum(desk.outbox.counts().values()) == 0


def test_not_even_a_person_opens_the_gate(desk: Desk) -> None:
    desk.queue.put(asked(src="voice-03"))
    desk.queue.claim("p1", "anna")
    with pytest.raises(NotAllowed, match="The source voice-03 can never cause LOT_HOLD; give the instruction yourself"):
        desk.queue.decide("p1", "anna", "LOT_HOLD")
    with pytest.raises(Invalid, match="There is no intent 'FLY'"):
        desk.queue.decide("p1", "anna", "FLY")
    assert desk.queue.get("p1").state == "claimed"


def test_a_hold_needs_a_lot(desk: Desk) -> None:
    desk.queue.put(asked(entities={}))
    desk.queue.claim("p1", "anna")
    with pytest.raises(Invalid, match="LOT_HOLD needs a lot"):
        desk.queue.decide("p1", "anna", "LOT_HOLD")
    with pytest.raises(Invalid, match="no name of a lot"):
        desk.queue.decide("p1", "anna", "LOT_HOLD", lot="x'; DROP TABLE reviews")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit SET entry = replace(entry, 'anna', 'bert') WHERE position = 2",
        "UPDATE audit SET at_s = at_s + 1 WHERE position = 2",
        "DELETE FROM audit WHERE position = 2",
    ],
)
def test_a_changed_audit_log_is_found_out(desk: Desk, change: str) -> None:
    for id in ("p1", "p2"):
        desk.queue.put(asked(id))
        desk.queue.claim(id, "anna")
    assert desk.queue.verify() == 4
    with sqlite3.connect(desk.folder / "reviews.db") as base:
        base.execute(change)
    with pytest.raises(Damaged, match="Entry 2 of the audit log is not what was written"):
        desk.queue.verify()


def test_an_end_that_was_cut_off_is_found_out_by_its_hash(desk: Desk) -> None:
    desk.queue.put(asked("p1"))
    desk.queue.put(asked("p2"))
    with sqlite3.connect(desk.folder / "reviews.db") as base:
        (head,) = base.execute("SELECT hash FROM audit WHERE position = 2").fetchone()
        assert desk.queue.verify(head) == 2
        base.execute("DELETE FROM audit WHERE position = 2")
    assert desk.queue.verify() == 1
    with pytest.raises(Damaged, match="The audit log ends before the entry"):
        desk.queue.verify(head)


def test_only_what_asks_for_a_person_is_queued(desk: Desk) -> None:
    with pytest.raises(Invalid, match="the verdict 'send' is not reviewed"):
        desk.queue.put(payload())
    desk.queue.note(payload(verdict="denied", intent=None))
    assert desk.queue.verify() == 1
    assert desk.queue.list() == []
