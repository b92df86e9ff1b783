"""A list of SHA-256 digests as one sorted file that is mapped, not read: millions of them, microseconds a look-up.

::

    FOVEOLA DIGESTS 1\\n | length of the header, uint32 | header, JSON | Ed25519 signature or zeros, 64 bytes | digests

The digests are sorted and unique, 32 bytes each. The header holds their count, the SHA-256 of all of them, a name and a
version that must grow; the signature is over everything before it, so it covers the digests too.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foveola.artifact.seal import parse_json
from foveola.exchange import Damaged, Invalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAGIC = b"FOVEOLA DIGESTS 1\n"
SIZE = 32
_SIGNATURE = 64
_MAX_HEADER = 1 << 16
_LINE = re.compile(r"([0-9a-fA-F]{64})(?:\s.*)?")


@dataclass(frozen=True, slots=True, eq=False)
class Digests:
    """An opened list. ``digest in digests`` is a look-up; ``signed`` says that its signature was checked."""

    name: str
    version: int
    count: int
    signed: bool
    _body: memoryview
    _fences: memoryview  # where the digests that begin with each two bytes begin: [65537]

    def __contains__(self, digest: bytes) -> bool:
        """Whether the list has this digest (32 bytes): about eight comparisons of ten million."""
        bucket = digest[0] << 8 | digest[1]
        low, high = self._fences[bucket], self._fences[bucket + 1]
        body = self._body
        while low < high:
            middle = (low + high) // 2
            found = bytes(body[middle * SIZE : middle * SIZE + SIZE])
            if found == digest:
                return True
            if found < digest:
                low = middle + 1
            else:
                high = middle
        return False

    def rows(self) -> NDArray[np.uint8]:
        """All digests, uint8 [count, 32], sorted."""
        return np.frombuffer(self._body, np.uint8).reshape(-1, SIZE)


def read_digests(lines: Iterable[str], label: str = "the list") -> NDArray[np.uint8]:
    """Digests in hexadecimal, one a line, as ``sha256sum`` writes them; uint8 [n, 32]. Raises ``Invalid``."""
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise Invalid(
                f"Line {number} of {label} holds no SHA-256: expected 64 hexadecimal digits, as sha256sum writes them.",
                field="digests",
            )
        found.append(match[1])
    return np.frombuffer(bytes.fromhex("".join(found)), np.uint8).reshape(-1, SIZE)


def sort_digests(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """``rows`` uint8 [n, 32] sorted, without repetition."""
    if not len(rows):
        return rows
    words = np.ascontiguousarray(rows).view(">u8").astype(np.uint64)
    order = np.argsort(words[:, 0])
    words = words[order]
    alike = np.flatnonzero(words[1:, 0] == words[:-1, 0])
    if len(alike):  # eight equal bytes: repetitions, hardly ever anything else
        again = np.lexsort(words.T[::-1])
        order, words = order[again], words[again]
    fresh = np.ones(len(words), bool)
    fresh[1:] = np.any(words[1:] != words[:-1], axis=1)
    return np.ascontiguousarray(rows[order[fresh]])


def write_digests(
    out: Path, rows: NDArray[np.uint8], *, name: str, version: int, key: Ed25519PrivateKey | None = None
) -> None:
    """Write ``rows`` as a list to ``out``, whole or not at all; signed where there is a ``key``."""
    body = sort_digests(rows)
    packed = body.reshape(-1).data
    header = {
        "name": name,
        "version": version,
        "count": len(body),
        "signed": key is not None,
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    text = json.dumps(header).encode()
    head = MAGIC + struct.pack("<I", len(text)) + text
    signature = bytes(_SIGNATURE) if key is None else key.sign(head)
    staged = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        with staged.open("wb") as stream:
            stream.write(head + signature)
            stream.write(packed)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(staged, out)
    finally:
        staged.unlink(missing_ok=True)


def open_digests(path: Path, key: Ed25519PublicKey | None = None) -> Digests:
    """Map a list and check all of it; with ``key`` it must be signed by that key. Raises ``Damaged``."""
    try:
        with path.open("rb") as stream:
            whole = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # mmap refuses an empty file with ValueError
        reason = getattr(error, "strerror", None) or "it is empty"
        raise Damaged(f"{path.name} cannot be read: {reason}.") from None
    start = len(MAGIC) + 4
    if bytes(whole[: len(MAGIC)]) != MAGIC:
        raise Damaged(f"{path.name} is no list of digests; make one with `foveola guard allow LIST --out FILE`.")
    length = int.from_bytes(whole[len(MAGIC) : start], "little")
    if length > _MAX_HEADER or len(whole) < start + length + _SIGNATURE:
        raise Damaged(f"{path.name} is truncated; make the list again.")
    head, body = whole[: start + length], whole[start + length + _SIGNATURE :]
    header = parse_json(bytes(head[start:]), path.name)
    name, version, count = (header.get(field) for field in ("name", "version", "count"))
    if not isinstance(name, str) or type(version) is not int or type(count) is not int:
        raise Damaged(f"{path.name} has a header without name, version, count; make the list again.")
    if key is not None:
        _check_signature(path.name, key, bytes(head), bytes(whole[start + length : start + length + _SIGNATURE]))
    if len(body) != count * SIZE or hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise Damaged(f"{path.name} is damaged: its digests are not those of its header. Copy it again, whole.")
    starts = np.frombuffer(body, np.uint8).reshape(-1, SIZE)[:, :2].copy().view(">u2").ravel()
    if np.any(starts[1:] < starts[:-1]):
        raise Damaged(f"{path.name} is not sorted; make the list again with `foveola guard allow`.")
    fences = np.searchsorted(starts, np.arange(65537)).astype(np.int64)
    return Digests(name, version, count, key is not None, body, fences.data)


def _check_signature(label: str, key: Ed25519PublicKey, head: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature

    if signature == bytes(_SIGNATURE):
        raise Damaged(f"{label} is not signed, and a signature is required; sign it with `foveola guard allow --sign`.")
    try:
        key.verify(signature, head)
    except InvalidSignature:
        raise Damaged(
            f"{label} is not signed by the key that is trusted, or was altered since; get it from its source again."
        ) from None
