"""A Bundle: graphs, tokenizer and everything else that an engine needs, sealed in one directory."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from foveola.artifact.atomic import staged_directory
from foveola.artifact.digest import FileDigest
from foveola.artifact.finding import Finding
from foveola.artifact.seal import check_name, check_seal, read_json, read_seal, write_seal
from foveola.exchange import Damaged

FORMAT = "foveola.bundle/1"
SEALED_FORMAT = "foveola.sealed/1"
SEAL_FILE = "manifest.json"
MODEL_FILE = "model.json"
TOKENIZER_FILE = "tokenizer.json"
_SECTIONS = ("vision", "text", "tokens", "graphs")


class Vault(Protocol):
    """Where the files of a sealed bundle are decrypted."""

    def read(self, name: str) -> bytes:
        """The plain bytes of a file. Raises ``Damaged``."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. ``model`` is its model.json: what the edge needs to know about the model, as plain data.

    ``path`` is absolute with links resolved, so that a link which moves to another version later does not mix two.
    ``vault`` is there where the files lie encrypted: then ``read`` gets them and ``file`` does not.
    """

    path: Path
    name: str
    created: str
    model_hash: str
    files: Mapping[str, FileDigest]
    lineage: tuple[Finding, ...]
    model: Mapping[str, Any]
    vault: Vault | None = field(default=None, repr=False)

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Bundle:
        """Open the bundle at ``path``. Names and sizes of all files are always compared with the manifest.

        With ``verify`` the content is, too (SHA-256, about a millisecond per megabyte). Raises Damaged with the
        name of the file that is missing, additional, truncated or altered.
        """
        root = Path(path)
        if not root.is_dir():
            raise Damaged(f"{root.name or 'The path'} is no directory; a bundle is one with a {SEAL_FILE} in it.")
        root = root.resolve()
        try:
            there = (root / SEAL_FILE).exists()
        except OSError as error:  # a directory that may not be entered
            reason = error.strerror or "input/output error"
            raise Damaged(f"{root.name} cannot be read: {reason}. Let whoever reads it enter it.") from None
        if not there:
            raise Damaged(f"{SEAL_FILE} is missing; {root.name} is not a bundle, or was never finished.")
        if read_json(root, SEAL_FILE).get("format") == SEALED_FORMAT:
            from foveola.artifact.sealed import open_sealed  # which knows this module

            return open_sealed(root)
        seal = read_seal(root, SEAL_FILE, format=FORMAT)
        check_seal(root, SEAL_FILE, seal, digests=verify)
        model = read_json(root, MODEL_FILE)
        check_model(model, seal.files)
        return cls(root, seal.name, seal.created, seal.model_hash, seal.files, seal.lineage, model)

    def file(self, name: str) -> Path:
        """Absolute path of the file ``name``. Raises Damaged when the bundle has none of that name, or is sealed."""
        if self.vault is not None:
            raise Damaged(f"{name} lies encrypted in the bundle {self.name}; what needs its path cannot use it.")
        return self._path(name)

    def _path(self, name: str) -> Path:
        if name not in self.files:
            raise Damaged(f"{name} is not part of the bundle {self.name}; it holds {', '.join(sorted(self.files))}.")
        return self.path / name

    def read(self, name: str) -> bytes:
        """The bytes of the file ``name``, checked against the seal as they are read. Raises Damaged."""
        path = self._path(name)
        if self.vault is not None:
            return self.vault.read(name)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror or 'input/output error'}.") from None
        if hashlib.sha256(data).hexdigest() != self.files[name].sha256:
            raise Damaged(f"{name} is damaged: its SHA-256 differs from the seal's. Copy the artefact again, whole.")
        return data


def write_bundle(
    out: Path | str,
    *,
    name: str,
    files: Callable[[Path], None],
    lineage: Sequence[Finding] = (),
    replace: bool = False,
    created: str | None = None,
) -> Bundle:
    """Write a bundle to ``out``, whole or not at all, and return it opened.

    ``files`` is called with an empty directory and writes everything but the manifest into it; model.json and
    tokenizer.json must be among it. ``created`` is an ISO 8601 date (default: now, UTC) and not part of the hash.

    Raises FileExistsError when ``out`` holds something and ``replace`` is False, ValueError for an invalid name,
    Damaged for a model.json that does not fit the files. Whatever ``files`` raises passes through; ``out`` is then
    what it was before.
    """
    out = Path(out)
    check_name(name)
    with staged_directory(out, replace=replace) as staging:
        files(staging)
        write_seal(staging, SEAL_FILE, format=FORMAT, name=name, created=created or utc_now(), lineage=lineage)
        Bundle.open(staging, verify=False)
    return Bundle.open(out, verify=False)


def utc_now() -> str:
    """The present as ISO 8601 in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()


def check_model(model: Mapping[str, Any], files: Mapping[str, FileDigest]) -> None:
    """The parts of model.json that every bundle has; what a room needs beyond that it checks where it reads it."""
    for key in ("family", "geometry"):
        if not isinstance(model.get(key), str):
            raise Damaged(f"{MODEL_FILE}: {key} is missing or not text; compile the bundle anew.")
    for key in _SECTIONS:
        if not isinstance(model.get(key), dict):
            raise Damaged(f"{MODEL_FILE}: {key} is missing or not an object; compile the bundle anew.")
    for graph, file in model["graphs"].items():
        if not isinstance(file, str) or file not in files:
            raise Damaged(f"{MODEL_FILE} names a file for the graph {graph!r} that is not in the bundle.")
    if TOKENIZER_FILE not in files:
        raise Damaged(f"{TOKENIZER_FILE} is missing; a bundle carries its tokenizer.")
