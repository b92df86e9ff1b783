"""The seal: a JSON file that names every other file of its directory, with digest and size, and the lineage."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from foveola.artifact.digest import FileDigest, digest_file, model_hash
from foveola.artifact.finding import Finding
from foveola.exchange import Damaged

MAX_JSON_BYTES = 64 * 2**20
"""No JSON file of an artefact may be longer; tokenizers of large vocabularies have about 12 MB."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_DEPTH = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("format", "name", "created", "model_hash", "files", "lineage")


@dataclass(frozen=True, slots=True)
class Seal:
    """What a sealed directory promises. ``files`` are all of its files but the seal itself, by relative name."""

    format: str
    name: str
    created: str
    model_hash: str
    files: Mapping[str, FileDigest]
    lineage: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """The seal as it is written."""
        return {
            "format": self.format,
            "name": self.name,
            "created": self.created,
            "model_hash": self.model_hash,
            "files": {n: {"sha256": d.sha256, "bytes": d.bytes} for n, d in sorted(self.files.items())},
            "lineage": [finding.to_json() for finding in self.lineage],
        }


def write_seal(root: Path, seal_file: str, *, format: str, name: str, created: str, lineage: Sequence[Finding]) -> Seal:
    """Digest every file under ``root`` and write the seal. Raises ValueError for a name or file that can't be kept."""
    check_name(name)
    files: dict[str, FileDigest] = {}
    for relative, path in _walk(root):
        if path is None:
            raise ValueError(f"{relative} is a link or a special file; an artefact holds regular files only")
        if problem := name_problem(relative):
            raise ValueError(f"{relative!r} cannot be a file of an artefact: {problem}")
        if relative != seal_file:
            files[relative] = digest_file(path)
    seal = Seal(format, name, created, model_hash(files), files, tuple(lineage))
    # allow_nan=False: NaN is not JSON, and a figure that is NaN is a mistake of the step that reported it.
    text = json.dumps(seal.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    (root / seal_file).write_text(text + "\n", encoding="utf-8")
    return seal


def read_seal(root: Path, seal_file: str, *, format: str) -> Seal:
    """Parse the seal of ``root``, believing nothing. Raises Damaged naming the seal file."""
    data = read_json(root, seal_file)
    missing = [field for field in _FIELDS if field not in data]
    if "format" in data and data["format"] != format:
        came = repr(data["format"])[:60] if isinstance(data["format"], str) else "something else"
        raise Damaged(f"{seal_file} has the format {came}; this version reads {format!r}: compile the artefact anew.")
    if missing:
        raise Damaged(f"{seal_file} lacks {', '.join(missing)}; write the artefact anew.")
    if not isinstance(data["name"], str) or not _NAME.fullmatch(data["name"]):
        raise Damaged(f"{seal_file} holds no valid name: 1 to 128 of letters, digits, dot, dash, underscore.")
    if not isinstance(data["created"], str):
        raise Damaged(f"{seal_file}: created is an ISO 8601 date as text.")
    files = _parse_files(data["files"], seal_file)
    if data["model_hash"] != model_hash(files):
        raise Damaged(f"{seal_file} was altered: its model_hash does not follow from its list of files.")
    if not isinstance(data["lineage"], list):
        raise Damaged(f"{seal_file}: lineage is a list of findings.")
    try:
        lineage = tuple(Finding.from_json(item) for item in data["lineage"])
    except ValueError as error:
        raise Damaged(f"{seal_file}: in its lineage, {error}.") from None
    return Seal(data["format"], data["name"], data["created"], data["model_hash"], files, lineage)


def check_seal(root: Path, seal_file: str, seal: Seal, *, digests: bool) -> None:
    """Compare ``root`` with its seal: names, sizes, with ``digests`` the content. Raises Damaged naming the file."""
    found: dict[str, Path] = {}
    for relative, path in _walk(root):
        if path is None:
            raise Damaged(f"{relative} is a link or a special file; a sealed artefact holds regular files only.")
        if relative != seal_file:
            found[relative] = path
    for relative in sorted(set(seal.files) - set(found)):
        raise Damaged(f"{relative} is missing; {seal_file} lists it. Copy the artefact again, whole.")
    for relative in sorted(set(found) - set(seal.files)):
        raise Damaged(f"{relative} is not listed in {seal_file}; a sealed artefact holds nothing else. Remove it.")
    for relative, path in sorted(found.items()):
        _check_file(relative, path, seal.files[relative], digests=digests)


def _check_file(relative: str, path: Path, expected: FileDigest, *, digests: bool) -> None:
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            word = "truncated" if size < expected.bytes else "too long"
            raise Damaged(
                f"{relative} is {word}: {size} bytes, expected {expected.bytes}. Copy the artefact again, whole."
            )
        if digests and digest_file(path) != expected:
            raise Damaged(
                f"{relative} is damaged: its SHA-256 differs from the seal's. Copy the artefact again, whole."
            )
    except OSError as error:
        raise Damaged(f"{relative} cannot be read: {error.strerror or 'input/output error'}.") from None


def check_name(name: str) -> None:
    """Raise ValueError unless ``name`` can name an artefact (it appears in file names, URLs and metrics)."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name: 1 to 128 letters, digits, dots, dashes, underscores; a letter or digit first"
        )


def name_problem(relative: str) -> str | None:
    """Why ``relative`` may not name a file inside an artefact, or None when it may."""
    path = PurePosixPath(relative)
    if not relative or not relative.isprintable() or len(relative) > 512:
        return "empty, too long or with characters that cannot be printed"
    if path.is_absolute() or "\\" in relative or ":" in relative:
        return "absolute, or with a backslash or colon"
    if ".." in path.parts or str(path) != relative:
        return "it leaves the directory or is not in its shortest form"
    return None


def read_json(root: Path, relative: str) -> dict[str, Any]:
    """The JSON object in the file ``relative`` of ``root``. Raises Damaged naming the file.

    Stricter than ``json.load``: a repeated key, NaN and Infinity are refused, and so is a file beyond 64 MiB.
    """
    path = root / relative
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Damaged(f"{relative} is not a regular file.")
        with path.open("rb") as stream:
            raw = stream.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError:
        raise Damaged(f"{relative} is missing.") from None
    except OSError as error:
        raise Damaged(f"{relative} cannot be read: {error.strerror or 'input/output error'}.") from None
    if len(raw) > MAX_JSON_BYTES:
        raise Damaged(f"{relative} is longer than {MAX_JSON_BYTES} bytes.")
    return parse_json(raw, relative)


def parse_json(raw: bytes, label: str) -> dict[str, Any]:
    """The JSON object in ``raw``, read strictly. Raises Damaged, naming the source as ``label``."""
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Damaged(f"{label} is not valid JSON; it is damaged or was cut off.") from None
    if not isinstance(data, dict):
        raise Damaged(f"{label} holds no JSON object.")
    return data


def _parse_files(data: object, seal_file: str) -> dict[str, FileDigest]:
    if not isinstance(data, dict) or not data:
        raise Damaged(f"{seal_file}: files is an object that names at least one file.")
    files: dict[str, FileDigest] = {}
    for relative, entry in data.items():
        shown = relative if relative.isprintable() and len(relative) <= 512 else "a file"
        problem = "it is the seal itself" if relative == seal_file else name_problem(relative)
        if problem:
            raise Damaged(f"{seal_file} lists {shown}, which is not allowed: {problem}.")
        sha256 = entry.get("sha256") if isinstance(entry, dict) else None
        size = entry.get("bytes") if isinstance(entry, dict) else None
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise Damaged(f"{seal_file} gives no SHA-256 for {shown}.")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Damaged(f"{seal_file} gives no size in bytes for {shown}.")
        files[relative] = FileDigest(sha256, size)
    return files


def _walk(root: Path, depth: int = 0) -> Iterator[tuple[str, Path | None]]:
    """Every entry below ``root`` by relative name; the path is None for what is neither file nor directory."""
    if depth > _MAX_DEPTH:
        raise Damaged(f"The artefact has directories more than {_MAX_DEPTH} deep, which none of ours has.")
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        raise Damaged(
            f"A directory of the artefact cannot be read: {error.strerror or 'input/output error'}."
        ) from None
    for entry in entries:
        path = Path(entry.path)
        if not entry.name.isprintable():
            raise Damaged(f"The artefact holds a file whose name cannot be printed: {ascii(entry.name)[:200]}.")
        if entry.is_dir(follow_symlinks=False):
            for relative, child in _walk(path, depth + 1):
                yield f"{entry.name}/{relative}", child
        else:
            yield entry.name, path if entry.is_file(follow_symlinks=False) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key is repeated")
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
