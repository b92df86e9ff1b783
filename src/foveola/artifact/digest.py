"""Digests: of one file, and of everything that makes a model what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What a file must be: ``sha256`` in lower-case hexadecimal and its size in bytes."""

    sha256: str
    bytes: int


def digest_file(path: Path) -> FileDigest:
    """Digest and size of the file at ``path``, read once in blocks. Raises OSError where it cannot be read."""
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileDigest(sha256, stream.tell())


def model_hash(files: Mapping[str, FileDigest]) -> str:
    """SHA-256 over the canonical JSON of ``{name: sha256}``: it changes with any byte and with any name.

    Dates, sizes and lineage are not part of it: the same weights compiled twice have the same hash.
    """
    canonical = json.dumps(
        {name: digest.sha256 for name, digest in files.items()},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    )
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
