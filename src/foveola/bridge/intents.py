"""The intents of a plant, read from a file that the plant edits."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.bridge.payload import NONE
from foveola.exchange import Invalid

BUILT_IN = Path(__file__).with_name("intents.toml")
_FIELDS = {"id", "meaning", "needs", "codes", "zh", "en", "phrases", "urgent", "negated"}


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing that may be instructed; the file explains each field."""

    id: str
    meaning: str
    phrases: tuple[str, ...]
    codes: tuple[str, ...] = ()
    zh: tuple[str, ...] = ()
    en: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    negated: str = NONE
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Intents:
    """All of them, and how things are called and misheard in this plant."""

    all: tuple[Intent, ...]
    ids: dict[str, re.Pattern[str]]
    voice: dict[str, str]
    ocr: dict[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the file's order."""
        return tuple(one.id for one in self.all)

    @property
    def wordings(self) -> tuple[str, ...]:
        """All phrases, in the file's order."""
        return tuple(text for one in self.all for text in one.phrases)

    def __getitem__(self, name: str) -> Intent:
        """The intent of this name. Raises ``Invalid`` for a name that is not in the file."""
        for one in self.all:
            if one.id == name:
                return one
        raise Invalid(f"There is no intent {name!r}; the intents file has: {', '.join(self.names)}.", field="intent")


def load_intents(path: Path = BUILT_IN) -> Intents:
    """Read an intents file. Raises ``Invalid`` that names the entry and says what is wrong with it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise Invalid(f"The intents file {path.name} cannot be read; name one that exists.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The intents file {path.name} is not TOML: {error}.") from None
    entries = document.get("intent", [])
    if not isinstance(entries, list) or not entries:
        raise Invalid(f"{path.name} has no [[intent]]; it needs one for each instruction, and one called {NONE}.")
    found = tuple(_intent(entry, path.name) for entry in entries)
    names = [one.id for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Invalid(f"{path.name} has {', '.join(twice)} more than once; keep one entry each.")
    if NONE not in names:
        raise Invalid(f"{path.name} lacks the intent {NONE}, which stands for everything that is no instruction.")
    for one in found:
        if one.negated not in names:
            raise Invalid(f"{one.id} in {path.name} is negated to {one.negated!r}, which is no intent of the file.")
    given = document.get("ids", {})
    if not isinstance(given, dict):
        raise Invalid(f"`ids` of {path.name} must be a table [ids] of regular expressions, by name.")
    ids = {name: _pattern(name, text, path.name) for name, text in given.items()}
    if "lot" not in ids:
        raise Invalid(f"[ids] of {path.name} lacks `lot`: the regular expression of a lot's name.")
    return Intents(found, ids, _words(document, "voice", path.name), _words(document, "ocr", path.name))


def _intent(entry: Any, file: str) -> Intent:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        raise Invalid(f"An [[intent]] of {file} has no `id`; expected a name such as LOT_HOLD.")
    name = entry["id"]
    unknown = sorted(set(entry) - _FIELDS)
    if unknown:
        raise Invalid(f"{name} in {file} has {', '.join(unknown)}; an intent has: {', '.join(sorted(_FIELDS))}.")
    lists = {key: entry.get(key, []) for key in ("phrases", "codes", "zh", "en", "needs")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(word, str) and word.strip() for word in value):
            raise Invalid(f"`{key}` of {name} in {file} must be a list of texts that are not empty.")
    if not lists["phrases"]:
        raise Invalid(f"{name} in {file} has no `phrases`; the encoder needs a few examples of how it is said.")
    urgent = entry.get("urgent", False)
    if not isinstance(urgent, bool):
        raise Invalid(f"`urgent` of {name} in {file} is {urgent!r}; expected true or false.")
    return Intent(
        name,
        str(entry.get("meaning", "")),
        negated=str(entry.get("negated", NONE)),
        urgent=urgent,
        **{key: tuple(value) for key, value in lists.items()},
    )


def _pattern(name: str, text: object, file: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(str(text), re.IGNORECASE)
    except re.error as error:
        raise Invalid(f"`{name}` in [ids] of {file} is no regular expression: {error}.") from None
    if pattern.groups < 1:
        raise Invalid(f"`{name}` in [ids] of {file} has no group; put the name itself in parentheses.")
    return pattern


def _words(document: dict[str, Any], table: str, file: str) -> dict[str, str]:
    found = document.get(table, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Invalid(f"[{table}] of {file} must hold texts: what is heard or read = what is meant.")
    return {key.lower(): value.lower() for key, value in found.items()}
