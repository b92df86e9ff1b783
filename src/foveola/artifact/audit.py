"""A log that shows when it was changed: every line carries the SHA-256 of the line before it.

One JSON object per line: ``n`` (from 0), ``time`` (ISO 8601, UTC), ``event``, what the event says, ``prev`` and
``hash``. ``hash`` is the SHA-256 over the canonical JSON of all the rest, so a line that was altered, taken out, put in
or moved breaks the chain. Cutting off the end does not: keep the head (count and hash of the last line), which
``foveola audit verify`` prints, somewhere else.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.artifact.seal import parse_json
from foveola.exchange import Damaged

GENESIS = "0" * 64
MAX_LINE = 1 << 20
_OURS = ("n", "time", "event", "prev", "hash")


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log ends: how many lines it has, and the hash of the last one."""

    count: int
    hash: str


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


class AuditLog:
    """Appends to one file; several threads and processes may do so at once."""

    def __init__(self, path: Path, clock: Callable[[], str] = _now) -> None:
        """``clock`` tells the time as text. The file is made when the first event comes, readable by its owner."""
        self.path = path
        self._clock = clock

    def append(self, event: str, **fields: Any) -> Head:
        """Write one event, forced to the disk, and return the new head.

        Raises ``Damaged`` when the end of the file is not that of a log, ValueError for a field with one of our names,
        OSError where the line cannot be written; the log is what it was then.
        """
        if taken := sorted(set(fields) & set(_OURS)):
            raise ValueError(f"an event cannot have the field {', '.join(taken)}")
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            head = self._head(handle)
            entry = {"n": head.count, "time": self._clock(), "event": event, **fields, "prev": head.hash}
            entry["hash"] = _hash(entry)
            line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
            _append_whole(handle, line)
        finally:
            os.close(handle)
        return Head(head.count + 1, entry["hash"])

    def _head(self, handle: int) -> Head:
        size = os.fstat(handle).st_size
        if not size:
            return Head(0, GENESIS)
        tail = os.pread(handle, MAX_LINE, max(0, size - MAX_LINE))
        last = tail[:-1].rpartition(b"\n")[2]
        if not tail.endswith(b"\n"):
            raise Damaged(f"{self.path.name} ends in the middle of a line; keep it as it is and begin a new log.")
        entry = _entry(last, f"The last line of {self.path.name}")
        return Head(entry["n"] + 1, entry["hash"])


def _append_whole(handle: int, line: bytes) -> None:
    """All of ``line``, on the disk, or nothing of it: a full disk takes half a line, after which no log could go on."""
    size = os.fstat(handle).st_size
    try:
        if os.write(handle, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log, in order, each one checked. Raises ``Damaged`` naming the line that breaks the chain."""
    expected = Head(0, GENESIS)
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), 1):
                label = f"Line {number} of {path.name}"
                if not line.endswith(b"\n"):
                    raise Damaged(f"{label} is cut off; something stopped in the middle of it, or the file was cut.")
                entry = _entry(line, label)
                if (entry["n"], entry["prev"]) != (expected.count, expected.hash):
                    raise Damaged(
                        f"{label} does not follow from the line before it: a line was removed, added or moved."
                    )
                expected = Head(entry["n"] + 1, entry["hash"])
                yield entry
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror or 'input/output error'}.") from None


def verify_audit(path: Path) -> Head:
    """Check the whole chain and return its head. Raises ``Damaged`` naming the first line that is wrong."""
    head = Head(0, GENESIS)
    for entry in read_audit(path):
        head = Head(entry["n"] + 1, entry["hash"])
    return head


def _entry(line: bytes, label: str) -> dict[str, Any]:
    entry = parse_json(line, label)
    if type(entry.get("n")) is not int or not all(isinstance(entry.get(name), str) for name in _OURS[1:]):
        raise Damaged(f"{label} is no entry of an audit log.")
    if _hash({name: value for name, value in entry.items() if name != "hash"}) != entry["hash"]:
        raise Damaged(f"{label} was altered: its hash is not that of what it says.")
    return entry


def _hash(entry: Mapping[str, Any]) -> str:
    text = json.dumps(entry, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
