"""Who may instruct what: the sources of a plant, each with its type, its place and the intents that it may cause.

The policy is a gate behind understanding: whatever a text says, a source causes nothing that is not on its list, and
who the source is comes from the transport, not from the text.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from foveola.bridge.intents import Intents
from foveola.bridge.payload import NONE, RawInstruction, SourceKind
from foveola.exchange import Invalid, Refusal

NEVER: dict[SourceKind, frozenset[str]] = {"voice": frozenset({"LOT_HOLD", "LOT_RELEASE"})}
"""What a type of source can never cause, whatever a configuration says: anybody can speak near a microphone."""


class Spoofed(Refusal):
    """The transport knows the sender under another name than the instruction does (403)."""

    code = "spoofed_source"
    status = 403


class UnknownSource(Refusal):
    """No such source is configured (404)."""

    code = "unknown_source"
    status = 404


@dataclass(frozen=True, slots=True)
class Source:
    """One device. ``allowed`` are intents; ``channel`` is the identity that the transport proves."""

    id: str
    kind: SourceKind
    place: str
    channel: str
    allowed: frozenset[str]


class Sources:
    """All sources of a plant."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self._sources = {source.id: source for source in sources}

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, src_id: str) -> Source:
        """The source of this name. Raises ``UnknownSource``."""
        if src_id not in self._sources:
            raise UnknownSource(f"There is no source {src_id!r}; add it to the sources file or correct `src_id`.")
        return self._sources[src_id]

    def admit(self, raw: RawInstruction) -> Source:
        """The source that ``raw`` comes from. Raises ``UnknownSource`` and ``Spoofed``."""
        source = self[raw.src_id]
        if raw.channel != source.channel:
            raise Spoofed(
                f"The instruction says that it comes from {raw.src_id}, but it arrived over the channel of another "
                "device; nothing was done. Check which device uses that key."
            )
        return source


def load_sources(path: Path, intents: Intents) -> Sources:
    """Read a sources file. Raises ``Invalid`` that names the source and the field."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("source", [])
    except OSError:
        raise Invalid(f"The sources file {path.name} cannot be read; name one that exists.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The sources file {path.name} is not TOML: {error}.") from None
    if not isinstance(entries, list) or not entries:
        raise Invalid(f"{path.name} has no [[source]]; it needs one for each device.")
    sources = tuple(_source(entry, intents, path.name) for entry in entries)
    names = [one.id for one in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Invalid(f"{path.name} has the source {', '.join(twice)} more than once; keep one entry each.")
    return Sources(sources)


def _source(entry: Any, intents: Intents, file: str) -> Source:
    wanted = {"id", "type", "place", "channel", "allowed"}
    if not isinstance(entry, dict) or set(entry) != wanted:
        got = ", ".join(sorted(entry)) if isinstance(entry, dict) else repr(entry)
        raise Invalid(f"A [[source]] of {file} has {got}; it must have exactly: {', '.join(sorted(wanted))}.")
    name = entry["id"]
    for key in wanted - {"allowed"}:
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise Invalid(f"`{key}` of source {name!r} in {file} must be a text that is not empty.")
    if entry["type"] not in get_args(SourceKind):
        known = ", ".join(get_args(SourceKind))
        raise Invalid(f"`type` of source {name} in {file} is {entry['type']!r}; expected one of {known}.")
    kind: SourceKind = entry["type"]
    if not isinstance(entry["allowed"], list):
        raise Invalid(f"`allowed` of source {name} in {file} must be a list of intents.")
    for intent in entry["allowed"]:
        if intent not in intents.names or intent == NONE:
            known = ", ".join(one for one in intents.names if one != NONE)
            raise Invalid(f"Source {name} in {file} may cause {intent!r}, which is no intent; there are: {known}.")
        if intent in NEVER.get(kind, ()):
            raise Invalid(f"Source {name} in {file} is of type {kind}, which can never cause {intent}; take it out.")
    return Source(name, kind, entry["place"], entry["channel"], frozenset(entry["allowed"]))
