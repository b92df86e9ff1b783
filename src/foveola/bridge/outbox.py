"""Commands on their way to the MES, kept on disk until the MES has confirmed that it carried them out.

A row goes ``waiting`` → ``sent`` (the broker took it) → ``confirmed`` (the MES did it) or ``failed`` (it lies in the
dead letters). A broker that loses what it took, or that is replaced by an empty one, therefore loses nothing: what is
sent and not confirmed is sent again.
Every command of a key (lot or line) has the next number of that key, so that the MES restores the order.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from foveola.bridge.database import open_database
from foveola.bridge.payload import BridgePayload
from foveola.exchange import Busy, Invalid

_SCHEMA = """
CREATE TABLE IF NOT EXISTS epoch (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
  position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, number INTEGER NOT NULL,
  value TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'waiting', sent_s REAL, attempts INTEGER NOT NULL DEFAULT 0,
  UNIQUE (key, number));
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (state, position);
"""


@dataclass(frozen=True, slots=True)
class Command:
    """One row: ``value`` is the JSON that goes over the wire, ``id`` its idempotency key."""

    position: int
    id: str
    key: str
    number: int
    value: str


class Outbox:
    """The durable queue of one bridge; used by several threads."""

    def __init__(self, path: Path, *, max_open: int = 1_000_000) -> None:
        self._base = open_database(path, _SCHEMA)
        self._lock = Lock()
        self._max_open = max_open
        with self._lock:
            self._base.execute("INSERT OR IGNORE INTO epoch VALUES (1, ?)", (uuid.uuid4().hex,))
            self.epoch: str = self._base.execute("SELECT name FROM epoch").fetchone()[0]

    def put(self, payload: BridgePayload) -> bool:
        """Keep the command of a payload that may be sent; False when its id is known already (a repetition).

        Raises ``Invalid`` for a payload that must not be sent, ``Busy`` when too many wait.
        """
        if payload.verdict != "send" or payload.resolved_intent is None:
            raise Invalid(f"A payload with the verdict {payload.verdict!r} is never sent; only 'send' is.")
        return self.put_values([(payload.id, payload.order_key, payload.to_json())]) == 1

    def put_values(self, commands: Iterable[tuple[str, str, dict[str, Any]]]) -> int:
        """Keep (id, key, fields) in this order, all or none; returns how many were new."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                self._check_room()
                added = sum(self._put(*command) for command in commands)
                self._base.execute("COMMIT")
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
        return added

    def _put(self, id: str, key: str, fields: dict[str, Any]) -> bool:
        if self._base.execute("SELECT 1 FROM outbox WHERE id = ?", (id,)).fetchone():
            return False
        self._base.execute("INSERT INTO keys VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET last = last + 1", (key,))
        (number,) = self._base.execute("SELECT last FROM keys WHERE key = ?", (key,)).fetchone()
        value = {**fields, "idempotency_key": id, "epoch": self.epoch, "key": key, "number": number}
        self._base.execute(
            "INSERT INTO outbox (id, key, number, value) VALUES (?, ?, ?, ?)",
            (id, key, number, json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
        )
        return True

    def _check_room(self) -> None:
        (open_now,) = self._base.execute("SELECT COUNT(*) FROM outbox WHERE state IN ('waiting', 'sent')").fetchone()
        if open_now >= self._max_open:
            raise Busy(
                f"{open_now} commands wait for the MES, as many as are kept; see why it does not confirm.",
                retry_after_s=5.0,
            )

    def due(self, limit: int, *, now_s: float, again_after_s: float) -> list[Command]:
        """What has to be sent, oldest first: what waits, and what was sent so long ago without being confirmed."""
        with self._lock:
            rows = self._base.execute(
                "SELECT position, id, key, number, value FROM outbox WHERE state = 'waiting'"
                " OR (state = 'sent' AND sent_s <= ?) ORDER BY position LIMIT ?",
                (now_s - again_after_s, limit),
            ).fetchall()
        return [Command(*row) for row in rows]

    def sent(self, positions: Iterable[int], now_s: float) -> None:
        """The broker has taken these."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.executemany(
                "UPDATE outbox SET state = 'sent', sent_s = ?, attempts = attempts + 1"
                " WHERE position = ? AND state IN ('waiting', 'sent')",
                [(now_s, position) for position in positions],
            )
            self._base.execute("COMMIT")

    def settled(self, ids: Iterable[str], *, failed: Iterable[str] = ()) -> None:
        """The MES has done with these; ``failed`` of them could not be carried out and lie in the dead letters."""
        bad = set(failed)
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            states = [("failed" if one in bad else "confirmed", one) for one in ids]
            self._base.executemany("UPDATE outbox SET state = ? WHERE id = ?", states)
            self._base.execute("COMMIT")

    def counts(self) -> dict[str, int]:
        """How many commands are in each state."""
        with self._lock:
            rows = self._base.execute("SELECT state, COUNT(*) FROM outbox GROUP BY state").fetchall()
        return {"waiting": 0, "sent": 0, "confirmed": 0, "failed": 0} | {row[0]: row[1] for row in rows}

    def forget_confirmed(self, keep: int = 10_000) -> int:
        """Drop all but the newest ``keep`` confirmed commands; a dropped id is no longer recognised as a repetition."""
        with self._lock:
            return self._base.execute(
                "DELETE FROM outbox WHERE state = 'confirmed' AND position <="
                " (SELECT COALESCE(MAX(position), 0) - ? FROM outbox)",
                (keep,),
            ).rowcount

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()
