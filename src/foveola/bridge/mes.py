"""The MES side: every command carried out once, in the order of its key, and only then taken off the topic.

The reference consumer keeps a ledger (SQLite). The effect of a command, its number, and the fact that it was done are
one transaction there; offsets are committed after it. An effect outside of the ledger gets the idempotency key.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from foveola.bridge.database import open_database
from foveola.bridge.kafka import KafkaOptions, confirmation, ensure_topics
from foveola.bridge.payload import SCHEMA, VERSION
from foveola.exchange import Refusal

log = logging.getLogger(__name__)

Effect = Callable[[sqlite3.Connection, dict[str, Any]], None]
"""Carries a command out, inside of the ledger's transaction. Raises ``Refusal`` for one that never can be."""
Probe = Callable[[str], None]
"""Told the name of each point of the loop as it is passed; tests end the process there."""

POINTS = ("polled", "applied", "ledger", "confirmed", "committed")
ATTEMPTS = 3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS last (epoch TEXT, key TEXT, number INTEGER NOT NULL, PRIMARY KEY (epoch, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parked (
  epoch TEXT, key TEXT, number INTEGER, value TEXT NOT NULL, since_s REAL NOT NULL, PRIMARY KEY (epoch, key, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS effects (
  position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL,
  intent TEXT NOT NULL, entities TEXT NOT NULL);
"""


def write_effect(base: sqlite3.Connection, command: dict[str, Any]) -> None:
    """The reference effect: a row in ``effects``."""
    base.execute(
        "INSERT INTO effects (id, key, number, intent, entities) VALUES (?, ?, ?, ?, ?)",
        (command["idempotency_key"], command["key"], command["number"], command["resolved_intent"],
         json.dumps(command.get("entities", {}))),
    )  # fmt: skip


class BadCommand(Refusal):
    """A message that is no command of a version that is understood here (it goes to the dead letters)."""

    code = "bad_command"
    status = 422


Outcome = tuple[dict[str, Any], str | None]
"""A command that is settled, and why it could not be carried out (None: it was)."""


class Ledger:
    """What was carried out, on disk. All methods want to be called inside of a transaction."""

    def __init__(self, path: Path, effect: Effect = write_effect) -> None:
        self.base = open_database(path, _SCHEMA)
        self._effect = effect

    def take(self, command: dict[str, Any], now_s: float) -> list[Outcome]:
        """Carry out ``command`` and what waited for it; returns all that is settled now, for confirmation.

        A repetition is settled again and not done again. One that comes too early is parked, unless it is urgent. One
        that fails gives its turn to the next.
        """
        epoch, key, number = command["epoch"], command["key"], command["number"]
        if self._is_done(command):
            return [(command, None)]
        row = self.base.execute("SELECT number FROM last WHERE epoch = ? AND key = ?", (epoch, key)).fetchone()
        last: int = row[0] if row else 0
        if number > last + 1:
            # An urgent one is done at once and parked all the same, so that its number is not missed later.
            self.base.execute(
                "INSERT OR IGNORE INTO parked VALUES (?, ?, ?, ?, ?)", (epoch, key, number, json.dumps(command), now_s)
            )
            return [self._do(command)] if command.get("urgent") else []
        settled = [self._do(command)]
        number = max(number, last)
        while (follower := self._waiting(epoch, key, number + 1)) is not None:
            settled.append(self._do(follower))
            number += 1
            self.base.execute("DELETE FROM parked WHERE epoch = ? AND key = ? AND number = ?", (epoch, key, number))
        self.base.execute("INSERT OR REPLACE INTO last VALUES (?, ?, ?)", (epoch, key, number))
        return settled

    def overdue(self, before_s: float) -> list[dict[str, Any]]:
        """Parked commands whose predecessor has been missing since before ``before_s``; they stay parked."""
        rows = self.base.execute("SELECT value FROM parked WHERE since_s < ? ORDER BY key, number", (before_s,))
        return [json.loads(row[0]) for row in rows]

    def _is_done(self, command: dict[str, Any]) -> bool:
        query = "SELECT 1 FROM done WHERE id = ?"
        return self.base.execute(query, (command["idempotency_key"],)).fetchone() is not None

    def _waiting(self, epoch: str, key: str, number: int) -> dict[str, Any] | None:
        query = "SELECT value FROM parked WHERE epoch = ? AND key = ? AND number = ?"
        row = self.base.execute(query, (epoch, key, number)).fetchone()
        return json.loads(row[0]) if row else None

    def _do(self, command: dict[str, Any]) -> Outcome:
        """Each attempt is a savepoint, so that half an effect is never kept."""
        if self._is_done(command):  # it was urgent, and its turn comes only now
            return command, None
        reason: str | None = f"carrying it out failed {ATTEMPTS} times"
        for _ in range(ATTEMPTS):
            self.base.execute("SAVEPOINT one")
            try:
                self._effect(self.base, command)
                reason = None
            except Refusal as refusal:
                reason = refusal.message
            except Exception:
                log.exception("a command failed")
                self.base.execute("ROLLBACK TO one")
                self.base.execute("RELEASE one")
                continue
            if reason is not None:
                self.base.execute("ROLLBACK TO one")
            self.base.execute("RELEASE one")
            break
        self.base.execute("INSERT INTO done VALUES (?)", (command["idempotency_key"],))
        return command, reason


def parse(value: bytes | None) -> dict[str, Any]:
    """A message's value as a command. Raises ``BadCommand``."""
    try:
        command = json.loads(value or b"")
        json.dumps(command, ensure_ascii=False).encode()  # half a surrogate pair is no text that a disk keeps
    except (ValueError, RecursionError):
        raise BadCommand("The message is not JSON, or nested without end, or holds broken characters.") from None
    if not isinstance(command, dict) or command.get("schema") != SCHEMA:
        raise BadCommand(f"The message is not of the schema {SCHEMA}.")
    if command.get("version") != VERSION:
        raise BadCommand(f"The command has version {command.get('version')!r}; understood here is {VERSION}.")
    for name, kind in (("idempotency_key", str), ("epoch", str), ("key", str), ("number", int),
                       ("resolved_intent", str)):  # fmt: skip
        if type(command.get(name)) is not kind:
            raise BadCommand(f"The command's `{name}` is {command.get(name)!r}; expected {kind.__name__}.")
    if abs(command["number"]) >= 2**63:
        raise BadCommand("The command's `number` has more than 63 bits; commands of a key are counted from 1.")
    return command


def _nothing(point: str) -> None:
    return None


class MesConsumer:
    """Reads in batches: effects and numbers → disk, confirmations → broker, offsets → broker, in this order."""

    def __init__(
        self, ledger: Ledger, options: KafkaOptions, *, probe: Probe = _nothing, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger, self._options, self._probe, self._clock = ledger, options, probe, clock
        self._consumer = options.consumer(options.group)
        self._consumer.subscribe([options.topic])
        self._producer = Producer(options.client(acks="all", **{"message.timeout.ms": 8000}))
        self._told_overdue: set[str] = set()

    def step(self, wait_s: float = 0.2, batch: int = 200) -> int:
        """One round; returns how many messages it read."""
        got = self._consumer.consume(batch, wait_s)
        messages = []
        for one in got:
            if one.error():
                log.info("the broker says: %s", one.error())
            else:
                messages.append(one)
        if not messages:
            if got:
                ensure_topics(self._options, 2.0)
            return 0
        self._probe("polled")
        settled, unreadable = self._apply(messages)
        for command, reason in settled:
            name = command["idempotency_key"].encode()
            self._producer.produce(self._options.done, confirmation(command, reason), key=name)
            if reason is not None:
                self._bury(json.dumps(command).encode(), command["key"].encode(), reason)
        for message, reason in unreadable:
            self._bury(message.value() or b"", message.key(), reason)
        if self._producer.flush(10.0) > 0:
            # Neither confirmed nor buried: the same messages are read again after a restart or a rebalance.
            log.warning("confirmations did not reach the broker; the offsets are not committed")
            return len(messages)
        self._probe("confirmed")
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:  # they come again and are recognised
            log.info("offsets were not committed: %s", error)
        self._probe("committed")
        return len(messages)

    def _apply(self, messages: list[Message]) -> tuple[list[Outcome], list[tuple[Message, str]]]:
        settled: list[Outcome] = []
        unreadable: list[tuple[Message, str]] = []
        base = self._ledger.base
        base.execute("BEGIN IMMEDIATE")
        try:
            for message in messages:
                try:
                    settled += self._ledger.take(parse(message.value()), self._clock())
                except BadCommand as bad:
                    unreadable.append((message, bad.message))
            self._probe("applied")
            base.execute("COMMIT")
        except BaseException:
            base.execute("ROLLBACK")
            raise
        self._probe("ledger")
        self._report_overdue()
        return settled, unreadable

    def _report_overdue(self) -> None:
        """Tell of commands that wait for a lost one; they are neither guessed at nor dropped."""
        for command in self._ledger.overdue(self._clock() - self._options.gap_s):
            name = command["idempotency_key"]
            if name not in self._told_overdue:
                self._told_overdue.add(name)
                text = json.dumps(command).encode()
                self._bury(text, command["key"].encode(), "waits for a command of its key that never came")

    def _bury(self, value: bytes, key: bytes | str | None, reason: str) -> None:
        self._producer.produce(self._options.dead, value, key=key, headers={"reason": reason})

    def close(self) -> None:
        """Leave the group."""
        self._producer.flush(5.0)
        self._consumer.close()
        self._ledger.base.close()
