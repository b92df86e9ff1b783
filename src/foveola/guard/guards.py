"""All guards that the settings ask for, put around an answerer in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from foveola.artifact.audit import AuditLog
from foveola.exchange import Answer, Damaged, Request
from foveola.guard.allowed import Listing, admit, allowed
from foveola.guard.digests import Digests, open_digests
from foveola.guard.keys import public_key
from foveola.guard.live import Gateways, LiveDigests
from foveola.guard.memory import Ceiling, bounded
from foveola.guard.options import MODES, OFF, WORD_ACTIONS, GuardOptions, routes_of
from foveola.guard.reloaded import ReloadedFile
from foveola.guard.verdict import Tell, nobody
from foveola.guard.worded import worded
from foveola.guard.wordfilter import Action, WordStream, scrub
from foveola.guard.words import Words, load_words

if TYPE_CHECKING:
    from foveola.guard.privacy import Deidentifier

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of one server; without settings it holds none and changes nothing."""

    options: GuardOptions = field(default_factory=GuardOptions)
    words: ReloadedFile[Words] | None = None
    digests: ReloadedFile[Digests] | None = None
    live: LiveDigests | None = None
    gateways: Gateways | None = None
    deidentifier: Deidentifier | None = None

    @classmethod
    def open(cls, options: GuardOptions) -> Guards:
        """Load what the settings name. Blocks; raises ``Damaged`` or ``NoDoor``."""
        words = ReloadedFile(options.words, load_words) if options.words is not None else None
        digests = live = gateways = None
        if options.allowlisting and options.allowlist_file is not None:
            digests = ReloadedFile(options.allowlist_file, _never_older(options.allowlist_key))
        if options.allowlist_live is not None and options.allowlist_gateways is not None:
            live = LiveDigests(options.allowlist_live)
            gateways = Gateways(options.allowlist_gateways, live)
        return cls(options, words, digests, live, gateways, _deidentifier(options))

    def around(self, answer: Answer, tell: Tell = nobody) -> Answer:
        """``answer``, guarded. What looks at the text is outermost, so that cached answers pass it too."""
        if self.deidentifier is not None:
            from foveola.guard.privacy import private

            answer = private(answer, self.deidentifier, tell)
        if self.options.allowlisting:
            answer = allowed(answer, self._listings, self._allowlist_mode(), tell)
        if self.words is not None:
            answer = worded(answer, self.words.current, self._word_action(), tell)
        if (ceiling := self.ceiling) is not None:
            answer = bounded(answer, ceiling, tell)
        return answer

    def counting(
        self, count: Callable[[Request], Awaitable[T]], tell: Tell = nobody
    ) -> Callable[[Request], Awaitable[T]]:
        """``count``, which looks at a picture too and so asks the allow-list first."""
        if not self.options.allowlisting:
            return count

        async def counting(request: Request) -> T:
            await admit(request, self._listings, self._allowlist_mode(), tell)
            return await count(request)

        return counting

    @property
    def active(self) -> bool:
        """Whether there is any guard."""
        there = (self.words, self.deidentifier, self.ceiling)
        return self.options.allowlisting or any(one is not None for one in there)

    @property
    def ceiling(self) -> Ceiling | None:
        """The limit of this process's memory, where one is set."""
        return Ceiling(self.options.memory_mib) if self.options.memory_mib else None

    def ailment(self) -> str | None:
        """Why this process should be restarted, in a few words, or None."""
        return self.ceiling.ailment() if self.ceiling is not None else None

    def scrub(self, text: str) -> str:
        """``text`` as it may be written to a log or sent as a message: banned words masked."""
        return text if self.words is None else scrub(self.words.current(), text)

    def stream(self, route: str = "") -> WordStream | None:
        """A filter for one text that goes out on ``route``, or None where nothing is filtered there."""
        action = None if self.words is None else self._word_action()(route)
        return None if self.words is None or action is None else WordStream(self.words.current(), action)

    def _listings(self) -> Sequence[Listing]:
        found: list[Listing] = [] if self.digests is None else [self.digests.current()]
        return found if self.live is None else [*found, self.live]

    def _allowlist_mode(self) -> Callable[[str], str]:
        routes = routes_of("allowlist_routes", self.options.allowlist_routes, MODES)
        return lambda route: routes.get(route, self.options.allowlist)

    def _word_action(self) -> Callable[[str], Action | None]:
        routes = routes_of("words_routes", self.options.words_routes, WORD_ACTIONS)
        default = self.options.words_action

        def action_of(route: str) -> Action | None:
            action = routes.get(route, default)
            return None if action == OFF else cast("Action", action)

        return action_of


def _deidentifier(options: GuardOptions) -> Deidentifier | None:
    if not options.privacy:
        return None
    from foveola.guard.privacy import Deidentifier  # brings onnxruntime, which other guards do without

    return Deidentifier.open(AuditLog(options.audit) if options.audit is not None else None)


def _never_older(key_path: Path | None) -> Callable[[Path], Digests]:
    """Loads a list of digests, but never one that is older than the last: an old signature stays a valid one."""
    key = public_key(key_path) if key_path is not None else None
    newest = 0

    def load(path: Path) -> Digests:
        nonlocal newest
        digests = open_digests(path, key)
        if digests.version < newest:
            raise Damaged(
                f"{path.name} has version {digests.version}, older than {newest} in force; write a newer one."
            )
        newest = digests.version
        return digests

    return load
