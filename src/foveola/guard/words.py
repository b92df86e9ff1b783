"""Lists of banned words: read from text, compiled once, loaded from one checked file.

A list has one word or phrase per line in UTF-8. ``# …`` is a comment, ``=word`` counts only as a whole word. The
compiled file (``foveola guard words``) holds the folding table and the automaton, not the words themselves::

    FOVEOLA WORDS 1\\n | length of the header, uint32 | header, JSON | tables, int32 little-endian | folds, UTF-8

Nothing in it is believed: lengths, the SHA-256 of all that follows the header, and every table are checked before use,
and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from foveola.artifact.seal import parse_json
from foveola.exchange import Damaged, Invalid
from foveola.guard.automaton import MAX_WORD, Tables, Walker, build
from foveola.guard.fold import BARRIER, fold_table

MAGIC = b"FOVEOLA WORDS 1\n"
MAX_FILE_BYTES = 1 << 30
_MAX_HEADER = 1 << 16
MANY = "many"
_COUNTS = ("words", "nodes", "folds")


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A compiled list, ready to be walked. ``version`` is the beginning of the SHA-256 of its tables.

    ``table`` has the normal form of every character that it changes; ``letters`` is the same for whoever takes one
    letter at a time: ``MANY`` stands for a normal form of several letters, and for a character that is replaced.
    """

    version: str
    count: int
    table: Mapping[str, str]
    letters: Mapping[str, str]
    walker: Walker

    def normal(self, text: str) -> str:
        """The normal form of ``text``."""
        return "".join(self.table.get(character, character) for character in text)


def read_list(lines: Iterable[str], label: str = "the list") -> dict[str, bool]:
    """Words as they are written, True for whole words. ``label`` names the source in messages. Raises ``Invalid``."""
    words: dict[str, bool] = {}
    for number, line in enumerate(lines, 1):
        word = line.strip().lstrip("\ufeff")
        if not word or word.startswith("#"):
            continue
        whole = word.startswith("=")
        word = word[whole:].strip()
        if not word:
            raise Invalid(f"Line {number} of {label} marks a whole word and names none; write =word.", field="words")
        words[word] = whole and words.get(word, True)  # a word that counts anywhere counts as a whole word too
    return words


def compile_words(words: Mapping[str, bool]) -> bytes:
    """The compiled file of ``words``, the same for the same words. Needs the package opencc (Chinese).

    Raises ``Invalid`` for a word without substance.
    """
    table = fold_table(_simplified())
    tables = build(_normal_words(words, table))
    keys = sorted(table)
    values = [table[key] for key in keys]
    folded = "".join(values)
    ends = np.cumsum([len(value) for value in values], dtype=np.int32)
    arrays = [np.array([ord(key) for key in keys], np.int32), ends]
    arrays += [getattr(tables, one.name) for one in fields(Tables)]
    body = b"".join(np.ascontiguousarray(array, "<i4").tobytes() for array in arrays) + folded.encode()
    header = {
        "words": len(words),
        "nodes": len(tables.label),
        "folds": len(keys),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    packed = json.dumps(header).encode()
    return MAGIC + struct.pack("<I", len(packed)) + packed + body


def _normal_words(words: Mapping[str, bool], table: Mapping[str, str]) -> dict[str, bool]:
    normal: dict[str, bool] = {}
    for word, whole in words.items():
        form = "".join(table.get(character, character) for character in word)
        if not form or (len(form) == 1 and form.isascii()):
            left = f"only {form!r}" if form else "nothing"
            raise Invalid(
                f"The word {word[:40]!r} has no substance: of its letters {left} is left after folding, which would "
                "ban far too much. Take it out or write a longer one.",
                field="words",
            )
        if len(form) > MAX_WORD:
            raise Invalid(
                f"The word {word[:40]!r}… has {len(form)} characters; at most {MAX_WORD} can be held back. Shorten it.",
                field="words",
            )
        normal[form] = whole and normal.get(form, True)
    return normal


def _simplified() -> dict[str, str]:
    """Traditional to simplified, character by character, from OpenCC's tables."""
    try:
        from opencc import OpenCC
    except ModuleNotFoundError:
        raise Invalid(
            "Compiling a list of words needs the package opencc: pip install 'foveola[guard]'.", field="words"
        ) from None
    ranges = ((0x3400, 0x9FFF), (0x20000, 0x323AF))
    characters = [chr(code) for low, high in ranges for code in range(low, high + 1)]
    converted = OpenCC("t2s").convert("\n".join(characters)).split("\n")
    return {old: new for old, new in zip(characters, converted, strict=True) if old != new and len(new) == 1}


def load_words(path: Path) -> Words:
    """Load a compiled file; about 50 ms for 100 000 words. Raises ``Damaged`` naming it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise Damaged(f"{path.name} is larger than {MAX_FILE_BYTES} bytes; it is no list of words.")
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror or 'input/output error'}.") from None
    return parse_words(data, path.name)


def parse_words(data: bytes, label: str) -> Words:
    """``load_words`` of a file's bytes."""
    if not data.startswith(MAGIC):
        raise Damaged(f"{label} is no compiled list of words; make one with `foveola guard words LIST --out FILE`.")
    start = len(MAGIC) + 4
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    if len(data) < start or length > _MAX_HEADER or len(data) < start + length:
        raise Damaged(f"{label} is truncated; compile the list again.")
    header = parse_json(data[start : start + length], label)
    counts = [header.get(name) for name in _COUNTS]
    if not all(type(count) is int and 0 <= count < MAX_FILE_BYTES for count in counts):
        raise Damaged(f"{label} has a header without {', '.join(_COUNTS)}; compile the list again.")
    body = memoryview(data)[start + length :]
    if hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise Damaged(f"{label} is damaged: its SHA-256 is not that of its header. Compile the list again.")
    words, nodes, folds = (int(count) for count in counts if count is not None)
    try:
        table, tables = _tables(body, nodes, folds)
        tables.check()
    except ValueError as error:
        raise Damaged(f"{label} cannot be used ({error}); compile the list again.") from None
    letters = {key: folded if len(folded) < 2 else MANY for key, folded in table.items()} | {BARRIER: MANY}
    return Words(str(header["sha256"])[:16], words, table, letters, Walker(tables))


def _tables(body: memoryview, nodes: int, folds: int) -> tuple[dict[str, str], Tables]:
    sizes = [folds, folds] + [nodes + (one.name == "first") for one in fields(Tables)]
    if len(body) < 4 * sum(sizes):
        raise ValueError("it is shorter than its header says")
    numbers = np.frombuffer(body[: 4 * sum(sizes)], "<i4").astype(np.int32)
    codes, ends, *arrays = np.split(numbers, np.cumsum(sizes)[:-1])
    try:
        folded = str(body[4 * sum(sizes) :], "utf-8")
        characters = [chr(code) for code in codes.tolist()]
    except (UnicodeDecodeError, OverflowError):
        raise ValueError("its folds are no characters") from None
    starts = [0, *ends.tolist()][:-1]
    if folds and (np.any(np.diff(ends) < 0) or ends[0] < 0 or ends[-1] != len(folded)):
        raise ValueError("its folds are out of order")
    table = {key: folded[a:b] for key, a, b in zip(characters, starts, ends.tolist(), strict=True)}
    return table, Tables(*arrays)


def write_words(data: bytes, out: Path) -> None:
    """Put a compiled file in its place in one step, so that a server that reloads never sees half of it."""
    staged = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        staged.write_bytes(data)
        os.replace(staged, out)
    finally:
        staged.unlink(missing_ok=True)
