"""SQLite files that survive a power cut: what is committed is on the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

BUSY_S = 30.0


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Open (or make) a database, with explicit transactions, and make sure that ``schema`` is there.

    WAL with ``synchronous=FULL``: a commit returns when the disk has it. Other processes may read and write it too.
    The connection may be used by several threads that take turns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(schema)
    return connection
