"""A log that cannot be changed unseen: every entry holds the hash of the one before it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Any

from foveola.exchange import Damaged

SCHEMA = """
CREATE TABLE IF NOT EXISTS audit (
  position INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, what TEXT NOT NULL, entry TEXT NOT NULL,
  previous TEXT NOT NULL, hash TEXT NOT NULL);
"""
FIRST = "0" * 64


def _hash(previous: str, at_s: float, what: str, entry: str) -> str:
    return hashlib.sha256("\n".join((previous, repr(at_s), what, entry)).encode()).hexdigest()


def append(base: sqlite3.Connection, what: str, entry: dict[str, Any], at_s: float) -> str:
    """Add an entry (inside of the caller's transaction) and return its hash, the new head of the chain."""
    row = base.execute("SELECT hash FROM audit ORDER BY position DESC LIMIT 1").fetchone()
    previous = row[0] if row else FIRST
    text = json.dumps(entry, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = _hash(previous, at_s, what, text)
    base.execute(
        "INSERT INTO audit (at_s, what, entry, previous, hash) VALUES (?, ?, ?, ?, ?)",
        (at_s, what, text, previous, digest),
    )
    return digest


def verify(base: sqlite3.Connection, head: str | None = None) -> int:
    """Check the whole chain and return its length.

    ``head`` is the hash of an entry that was noted elsewhere: it has to be in the chain, or its end was cut off.
    Raises ``Damaged`` that names the first entry that is not what was written.
    """
    previous, position, heads = FIRST, 0, set()
    for row in base.execute("SELECT * FROM audit ORDER BY position"):
        position += 1
        whole = row["position"] == position and row["previous"] == previous
        if not whole or _hash(previous, row["at_s"], row["what"], row["entry"]) != row["hash"]:
            raise Damaged(f"Entry {position} of the audit log is not what was written; keep the file as evidence.")
        previous = row["hash"]
        heads.add(previous)
    if head is not None and head not in heads:
        raise Damaged(f"The audit log ends before the entry {head[:12]}…; keep the file as evidence.")
    return position
