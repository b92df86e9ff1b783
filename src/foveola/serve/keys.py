"""API keys: who may ask, how often, and what else a key opens. The file holds digests; a key itself is shown once.

[[key]]
name = "line-3"                 # what logs and metrics call it
sha256 = "..."                  # of the key; `foveola key line-3` makes both
roles = ["ask"]                 # ask, admin; default: ask
requests_per_minute = 600       # default: no limit of its own
priority = 0                    # -100..100, higher goes first; default: 0
visual_prompt = "plant-7"       # before every picture of this key, and the only one it may name; default: any
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.options import BadSetting

ROLES = ("ask", "admin")
PREFIX = "fov-"
MAX_PRIORITY = 100
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("name", "sha256", "roles", "requests_per_minute", "priority", "visual_prompt")


@dataclass(frozen=True, slots=True)
class Key:
    """A client that may come in. ``digest`` is the SHA-256 of its key; ``requests_per_minute`` 0 is no limit;
    ``visual_prompt`` stands before its pictures, and it may name no other (empty: none, and any)."""

    name: str
    digest: bytes
    roles: frozenset[str] = frozenset({"ask"})
    requests_per_minute: int = 0
    priority: int = 0
    visual_prompt: str = ""


class KeyRing:
    """All keys there are. Finding one takes the same time whether it is there or not, and wherever it stands."""

    def __init__(self, keys: tuple[Key, ...] = ()) -> None:
        self.keys = keys

    def __bool__(self) -> bool:
        return bool(self.keys)

    def find(self, presented: str) -> Key | None:
        """The key that was presented, or None. Every digest is compared, each in constant time."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        found: Key | None = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


NO_KEYS = KeyRing()


def read_keys(path: Path) -> KeyRing:
    """The keys in a file. Raises ``BadSetting`` naming the entry that is wrong; a digest is never shown."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(
            f"The file of keys {path.name} cannot be read: {error.strerror or 'input/output error'}."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise BadSetting(f"The file of keys {path.name} is not TOML; `foveola key NAME` shows an entry.") from None
    entries = document.get("key")
    if set(document) != {"key"} or not isinstance(entries, list) or not entries:
        raise BadSetting(f"The file of keys {path.name} holds no [[key]] entries, or something else besides them.")
    keys = tuple(_key(entry, f"entry {at} of {path.name}") for at, entry in enumerate(entries, 1))
    for what in ("name", "digest"):
        if len({getattr(key, what) for key in keys}) < len(keys):
            raise BadSetting(f"Two entries of {path.name} have the same {what}; give each its own.")
    return KeyRing(keys)


def _key(entry: Mapping[str, Any], where: str) -> Key:
    if not isinstance(entry, dict):
        raise BadSetting(f"Key {where} is no table; write [[key]] above it.")
    if strange := sorted(set(entry) - set(_FIELDS)):
        raise BadSetting(f"Key {where} has `{strange[0]}`; expected {', '.join(_FIELDS)}.")
    name, digest = entry.get("name"), entry.get("sha256")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadSetting(f"Key {where} has no good `name`; expected 1 to 64 letters, digits, `.`, `_` or `-`.")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise BadSetting(f"Key {where} has no good `sha256`; expected 64 hexadecimal digits in lower case.")
    roles = entry.get("roles", ["ask"])
    if not isinstance(roles, list) or not roles or not set(map(str, roles)) <= set(ROLES):
        raise BadSetting(f"Key {where} has no good `roles`; expected a list of {', '.join(ROLES)}.")
    prompt = entry.get("visual_prompt", "")
    if not isinstance(prompt, str) or (prompt and not NAME.fullmatch(prompt)):
        raise BadSetting(f"Key {where} has no good `visual_prompt`; expected the name of a directory with a prompt.")
    return Key(
        name,
        bytes.fromhex(digest),
        frozenset(roles),
        _whole(entry, "requests_per_minute", 0, 10**9, where),
        _whole(entry, "priority", -MAX_PRIORITY, MAX_PRIORITY, where),
        prompt,
    )


def _whole(entry: Mapping[str, Any], name: str, low: int, high: int, where: str) -> int:
    value = entry.get(name, 0)
    if type(value) is not int or not low <= value <= high:
        raise BadSetting(f"Key {where} has no good `{name}`; expected a whole number from {low} to {high}.")
    return value


def new_key() -> tuple[str, str]:
    """A fresh key (256 bits from the system) and the hexadecimal SHA-256 that stands for it in the file."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()
