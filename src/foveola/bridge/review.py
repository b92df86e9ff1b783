"""The queue of instructions that a person decides: durable, claimed by one at a time, every step in the audit log."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from foveola.bridge import audit
from foveola.bridge.corpus import Labelled
from foveola.bridge.database import open_database
from foveola.bridge.intents import Intents
from foveola.bridge.outbox import Outbox
from foveola.bridge.payload import NONE, BridgePayload
from foveola.bridge.sources import Sources
from foveola.bridge.text import is_chinese
from foveola.exchange import Invalid, Refusal

_SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS reviews (
  id TEXT PRIMARY KEY, payload TEXT NOT NULL, state TEXT NOT NULL, since_s REAL NOT NULL, expires_s REAL NOT NULL,
  holder TEXT, held_until_s REAL, intent TEXT, entities TEXT, reason TEXT, decided_s REAL,
  sent INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reviews_open ON reviews (state, since_s);
"""
    + audit.SCHEMA
)


class Taken(Refusal):
    """Somebody else holds it, or it is decided or expired (409)."""

    code = "review_taken"
    status = 409


class NoReview(Refusal):
    """There is no such review (404)."""

    code = "no_review"
    status = 404


class NotAllowed(Refusal):
    """The source may not cause what the reviewer decided (403)."""

    code = "not_allowed"
    status = 403


@dataclass(frozen=True, slots=True)
class Review:
    """One item. ``state`` is open, claimed, decided or expired; times in Unix seconds."""

    id: str
    payload: dict[str, Any]
    state: str
    since_s: float
    expires_s: float
    holder: str | None
    held_until_s: float | None
    intent: str | None
    reason: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class ReviewQueue:
    """Decisions by people. What is decided and is an instruction goes to the outbox under the id of the payload."""

    def __init__(
        self, path: Path, intents: Intents, sources: Sources, outbox: Outbox, *, expire_s: float = 8 * 3600.0,
        claim_s: float = 300.0, clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._base = open_database(path, _SCHEMA)
        self._lock = Lock()
        self._intents, self._sources, self._outbox, self._clock = intents, sources, outbox, clock
        self._expire_s, self._claim_s = expire_s, claim_s
        self.send_decided()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                self._base.execute("ROLLBACK")
                raise

    def put(self, payload: BridgePayload) -> bool:
        """Keep a payload that asks for a person; False when it is known already."""
        if payload.verdict != "review":
            raise Invalid(f"A payload with the verdict {payload.verdict!r} is not reviewed; only 'review' is.")
        now = self._clock()
        with self._transaction() as base:
            added = base.execute(
                "INSERT OR IGNORE INTO reviews (id, payload, state, since_s, expires_s) VALUES (?, ?, 'open', ?, ?)",
                (payload.id, json.dumps(payload.to_json(), ensure_ascii=False), now, now + self._expire_s),
            ).rowcount
            if added:
                audit.append(base, "asked", payload.to_json(), now)
        return bool(added)

    def note(self, payload: BridgePayload) -> None:
        """Only log: what was denied by the source's policy is on record, and nobody can let it through."""
        with self._transaction() as base:
            audit.append(base, payload.verdict, payload.to_json(), self._clock())

    def claim(self, id: str, who: str) -> Review:
        """Hold an item for ``claim_s``; renewing one's own claim is allowed. Raises ``NoReview``, ``Taken``."""
        now = self._clock()
        with self._transaction() as base:
            self._expire(base, now)
            one = self._get(base, id)
            self._check_free(one, who, now)
            base.execute(
                "UPDATE reviews SET state = 'claimed', holder = ?, held_until_s = ? WHERE id = ?",
                (who, now + self._claim_s, id),
            )
            audit.append(base, "claimed", {"id": id, "who": who}, now)
            return self._get(base, id)

    def decide(self, id: str, who: str, intent: str, *, lot: str | None = None, reason: str = "") -> Review:
        """What the instruction means (``NONE``: nothing). Only whoever holds the claim may; it goes to the MES.

        Raises ``NoReview``, ``Taken``, ``Invalid`` for an intent that does not exist or lacks its lot, ``NotAllowed``
        for one that the source may not cause: the gate is not opened by a person either, who may give the instruction
        in their own name.
        """
        wanted = self._intents[intent]
        now = self._clock()
        with self._transaction() as base:
            self._expire(base, now)
            one = self._get(base, id)
            self._check_free(one, who, now)
            if one.state != "claimed" or one.holder != who:
                raise Taken(f"Claim the review {id} before you decide it.")
            source = self._sources[one.payload["src_id"]]
            if intent != NONE and intent not in source.allowed:
                raise NotAllowed(f"The source {source.id} can never cause {intent}; give the instruction yourself.")
            entities = {**one.payload["entities"], **({"lot": lot} if lot else {})}
            if lot and not self._intents.ids["lot"].fullmatch(lot):
                raise Invalid(f"`lot` is {lot!r}, which is no name of a lot here.", field="lot")
            if "lot" in wanted.needs and "lot" not in entities:
                raise Invalid(f"{intent} needs a lot; say which with `lot`.", field="lot")
            base.execute(
                "UPDATE reviews SET state = 'decided', intent = ?, entities = ?, reason = ?, decided_s = ?"
                " WHERE id = ?",
                (intent, json.dumps(entities), reason, now, id),
            )
            audit.append(base, "decided", {"id": id, "who": who, "intent": intent, "entities": entities,
                                           "reason": reason}, now)  # fmt: skip
            decided = self._get(base, id)
        self.send_decided()
        return decided

    def send_decided(self) -> int:
        """Hand decided instructions to the outbox. After a crash it is repeated; the id is known there."""
        with self._lock:
            rows = self._base.execute("SELECT * FROM reviews WHERE state = 'decided' AND sent = 0").fetchall()
        for row in rows:
            if row["intent"] != NONE:
                payload = json.loads(row["payload"])
                entities = json.loads(row["entities"])
                key = entities.get("lot") or payload["context"]["place"]
                payload |= {"resolved_intent": row["intent"], "entities": entities, "verdict": "send", "order_key": key,
                            "urgent": self._intents[row["intent"]].urgent, "decided_by": row["holder"]}  # fmt: skip
                self._outbox.put_values([(row["id"], key, payload)])
            with self._transaction() as base:
                base.execute("UPDATE reviews SET sent = 1 WHERE id = ?", (row["id"],))
        return len(rows)

    def expire(self) -> int:
        """Give up what nobody decided in time: nothing is sent for it. Returns how many."""
        with self._transaction() as base:
            return self._expire(base, self._clock())

    def _expire(self, base: sqlite3.Connection, now: float) -> int:
        rows = base.execute(
            "SELECT id FROM reviews WHERE state IN ('open', 'claimed') AND expires_s <= ?", (now,)
        ).fetchall()
        for (id,) in rows:
            base.execute("UPDATE reviews SET state = 'expired' WHERE id = ?", (id,))
            audit.append(base, "expired", {"id": id}, now)
        return len(rows)

    def list(self, state: str = "open", limit: int = 100) -> list[Review]:
        """Oldest first; ``open`` includes claims that ran out."""
        now = self._clock()
        with self._transaction() as base:
            self._expire(base, now)
            query = "state = ?" if state != "open" else "(state = ? OR (state = 'claimed' AND held_until_s <= ?))"
            given: tuple[object, ...] = (state,) if state != "open" else (state, now)
            rows = base.execute(
                f"SELECT * FROM reviews WHERE {query} ORDER BY since_s LIMIT ?", (*given, limit)
            ).fetchall()
        return [_review(row) for row in rows]

    def get(self, id: str) -> Review:
        """One item. Raises ``NoReview``."""
        with self._lock:
            return self._get(self._base, id)

    def counts(self) -> dict[str, int]:
        """How many there are in each state."""
        with self._lock:
            rows = self._base.execute("SELECT state, COUNT(*) FROM reviews GROUP BY state").fetchall()
        return {"open": 0, "claimed": 0, "decided": 0, "expired": 0} | {row[0]: row[1] for row in rows}

    def labelled(self) -> tuple[Labelled, ...]:
        """What people decided, as labelled instructions for ``foveola bridge calibrate``."""
        with self._lock:
            rows = self._base.execute("SELECT * FROM reviews WHERE state = 'decided' ORDER BY decided_s").fetchall()
        found = []
        for row in rows:
            payload = json.loads(row["payload"])
            language = "zh" if is_chinese(payload["text"]) else "en"
            lot = json.loads(row["entities"]).get("lot")
            kind = self._sources[payload["src_id"]].kind
            found.append(Labelled(payload["text"], row["intent"], language, kind, ("reviewed",), lot))
        return tuple(found)

    def verify(self, head: str | None = None) -> int:
        """Check the audit log and return its length. Raises ``Damaged``."""
        with self._lock:
            return audit.verify(self._base, head)

    def _get(self, base: sqlite3.Connection, id: str) -> Review:
        row = base.execute("SELECT * FROM reviews WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise NoReview(f"There is no review {id!r}; list the open ones.")
        return _review(row)

    @staticmethod
    def _check_free(one: Review, who: str, now: float) -> None:
        if one.state in ("decided", "expired"):
            raise Taken(f"The review {one.id} is {one.state} already.")
        if one.state == "claimed" and one.holder != who and (one.held_until_s or 0) > now:
            raise Taken(f"The review {one.id} is held by {one.holder}; take another one, or wait.")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()


def _review(row: sqlite3.Row) -> Review:
    return Review(
        row["id"], json.loads(row["payload"]), row["state"], row["since_s"], row["expires_s"], row["holder"],
        row["held_until_s"], row["intent"], row["reason"],
    )  # fmt: skip
