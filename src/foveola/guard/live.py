"""Digests that a camera gateway registers moments before it sends the picture; each is forgotten when its time is up.

A gateway signs what it registers with its Ed25519 key: ``foveola-register\\n``, the time in Unix seconds, a line break,
and the body. A digest's time runs from the signed time, so replaying a registration prolongs nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foveola.artifact.seal import parse_json
from foveola.exchange import Damaged, Invalid, Refusal
from foveola.guard.keys import public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_AGE_S = 30.0
MAX_TTL_S = 86_400
MAX_DIGESTS = 10_000
_HEX = re.compile(r"[0-9a-f]{64}")
_PURGE_EVERY = 64


class Stranger(Refusal):
    """Who registers is not a gateway that is known here (401)."""

    code = "unknown_gateway"
    status = 401


class LiveDigests:
    """Registered digests in one SQLite file; survives a restart, may be shared by processes of one machine."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open or make the database. Raises ``Damaged`` where the file is something else."""
        self._clock = clock
        self._lock = threading.Lock()
        self._since_purge = 0
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS live "
                "(digest BLOB PRIMARY KEY, expires REAL NOT NULL, gateway TEXT NOT NULL) WITHOUT ROWID"
            )
        except sqlite3.Error:
            raise Damaged(f"{path.name} is no database of live registrations; name another file.") from None

    def __contains__(self, digest: bytes) -> bool:
        """Whether the digest is registered and its time is not up."""
        with self._lock:
            row = self._db.execute("SELECT expires FROM live WHERE digest = ?", (digest,)).fetchone()
        return row is not None and row[0] > self._clock()

    def register(self, digests: Sequence[bytes], *, expires: float, gateway: str) -> None:
        """Add digests until ``expires`` (Unix seconds); one that is there keeps the later time."""
        rows = [(digest, expires, gateway) for digest in digests]
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(
                    "INSERT INTO live VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET "
                    "expires = max(expires, excluded.expires), gateway = excluded.gateway",
                    rows,
                )
                self._since_purge += 1
                if self._since_purge >= _PURGE_EVERY:
                    self._db.execute("DELETE FROM live WHERE expires <= ?", (self._clock(),))
                    self._since_purge = 0
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the database."""
        self._db.close()


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registration did: so many digests of ``gateway``, until ``expires`` (Unix seconds)."""

    gateway: str
    digests: int
    expires: float


class Gateways:
    """The gateways whose public keys lie as ``NAME.pem`` in a folder, and what they register."""

    def __init__(self, folder: Path, live: LiveDigests, clock: Callable[[], float] = time.time) -> None:
        """Read all keys. Raises ``Damaged`` for one that is none, or where there is none at all."""
        self._live = live
        self._clock = clock
        self._keys: dict[str, Ed25519PublicKey] = {path.stem: public_key(path) for path in folder.glob("*.pem")}
        if not self._keys:
            raise Damaged(
                f"The folder {folder.name} holds no gateway's key; put each one's public key there as NAME.pem."
            )

    def register(self, body: bytes, *, gateway: str, signed_at: str, signature: str) -> Registered:
        """Check and do it. Raises ``Stranger`` or ``Invalid``; nothing is registered then."""
        moment = self._authenticated(body, gateway, signed_at, signature)
        try:
            document = parse_json(body, "The body")
        except Damaged as error:
            raise Invalid(error.message) from None
        digests, ttl_s = document.get("digests"), document.get("ttl_s")
        if not isinstance(ttl_s, int) or isinstance(ttl_s, bool) or not 1 <= ttl_s <= MAX_TTL_S:
            raise Invalid(f"`ttl_s` must be a whole number of seconds from 1 to {MAX_TTL_S}.", field="ttl_s")
        if not isinstance(digests, list) or not 1 <= len(digests) <= MAX_DIGESTS:
            raise Invalid(f"`digests` must be a list of 1 to {MAX_DIGESTS} SHA-256 digests.", field="digests")
        if not all(isinstance(digest, str) and _HEX.fullmatch(digest) for digest in digests):
            raise Invalid("`digests` holds something that is not 64 lower-case hexadecimal digits.", field="digests")
        expires = moment + ttl_s
        self._live.register([bytes.fromhex(digest) for digest in digests], expires=expires, gateway=gateway)
        return Registered(gateway, len(digests), expires)

    def _authenticated(self, body: bytes, gateway: str, signed_at: str, signature: str) -> float:
        from cryptography.exceptions import InvalidSignature

        refused = Stranger(
            "This registration is not signed by a gateway that is known here, or its time is off by more than "
            f"{MAX_AGE_S:g} s; check X-Gateway, X-Timestamp, X-Signature and the clock."
        )
        key = self._keys.get(gateway)
        if key is None or not re.fullmatch(r"[0-9]{1,12}", signed_at):
            raise refused
        try:
            key.verify(base64.b64decode(signature, validate=True), signed_text(signed_at, body))
        except (InvalidSignature, binascii.Error, ValueError):
            raise refused from None
        moment = float(signed_at)
        if abs(self._clock() - moment) > MAX_AGE_S:
            raise refused
        return moment


def signed_text(signed_at: str, body: bytes) -> bytes:
    """What a gateway signs."""
    return b"foveola-register\n" + signed_at.encode() + b"\n" + body
