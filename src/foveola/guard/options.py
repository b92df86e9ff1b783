"""The guard's settings: ``[guard]`` in ``foveola.toml``, ``FOVEOLA_GUARD_*``. Without any, nothing is guarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OFF = "off"
MODES = (OFF, "audit", "enforce")
WORD_ACTIONS = (OFF, "mask", "drop", "stop")


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """Each guard has a setting for every route and, where a route differs, ``ROUTE=SETTING, …`` in ``*_routes``.

    ``words`` is a compiled list; ``words_action`` what is done with banned words. ``allowlist`` is the mode;
    ``allowlist_file`` the digests, which must be signed where ``allowlist_key`` (an Ed25519 public key in PEM) is
    given; ``allowlist_live`` the database of live registrations and ``allowlist_gateways`` the folder with each
    gateway's public key (``NAME.pem``). ``privacy`` says whether faces and plates are removed from pictures before
    anyone else gets them. ``memory_mib`` is the most memory that the process may hold while it takes
    newcomers, 0 for no limit. ``audit`` is the file of the hash-chained log. Raises ValueError naming the setting.
    """

    words: Path | None = None
    words_action: str = "mask"
    words_routes: str = ""
    allowlist: str = OFF
    allowlist_routes: str = ""
    allowlist_file: Path | None = None
    allowlist_key: Path | None = None
    allowlist_live: Path | None = None
    allowlist_gateways: Path | None = None
    privacy: bool = False
    memory_mib: int = 0
    audit: Path | None = None

    def __post_init__(self) -> None:
        _among("words_action", self.words_action, WORD_ACTIONS)
        _among("allowlist", self.allowlist, MODES)
        routes_of("words_routes", self.words_routes, WORD_ACTIONS)
        routes_of("allowlist_routes", self.allowlist_routes, MODES)
        if self.allowlisting and self.allowlist_file is None and self.allowlist_live is None:
            raise ValueError("`allowlist` needs digests: set allowlist_file, allowlist_live, or both")
        if self.memory_mib < 0:
            raise ValueError(f"`memory_mib` is {self.memory_mib}; expected a number of MiB, or 0 for no limit")
        if (self.allowlist_live is None) != (self.allowlist_gateways is None):
            raise ValueError("`allowlist_live` and allowlist_gateways go together: who may register, and where")

    @property
    def allowlisting(self) -> bool:
        """Whether any route asks the allow-list."""
        asked = [self.allowlist, *routes_of("allowlist_routes", self.allowlist_routes, MODES).values()]
        return any(mode != OFF for mode in asked)

    @property
    def active(self) -> bool:
        """Whether anything is guarded at all."""
        return self.words is not None or self.allowlisting or self.privacy or self.memory_mib > 0


def routes_of(name: str, text: str, known: Sequence[str]) -> Mapping[str, str]:
    """``"/v1/a=off, /v1/b=mask"`` as a mapping. Raises ValueError naming the setting ``name``."""
    routes: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        route, found, value = (part.strip() for part in entry.partition("="))
        if not found or not route.startswith("/"):
            raise ValueError(f"`{name}` holds {entry!r}; expected /path=setting, several parted by commas")
        _among(name, value, known)
        routes[route] = value
    return routes


def _among(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"`{name}` is {value!r}; expected one of {', '.join(known)}")
