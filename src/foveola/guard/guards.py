"""All guards that the settings ask for, put around an answerer in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from foveola.exchange import Answer
from foveola.guard.options import OFF, WORD_ACTIONS, GuardOptions, routes_of
from foveola.guard.verdict import Tell, nobody
from foveola.guard.wordfile import WordFile
from foveola.guard.wordfilter import Action, scrub


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of one server; without settings it holds none and changes nothing."""

    options: GuardOptions = field(default_factory=GuardOptions)
    words: WordFile | None = None

    @classmethod
    def open(cls, options: GuardOptions) -> Guards:
        """Load what the settings name. Blocks; raises ``Damaged`` or ``Invalid``."""
        return cls(options, WordFile(options.words) if options.words is not None else None)

    def around(self, answer: Answer, tell: Tell = nobody) -> Answer:
        """``answer``, guarded. Outermost is what looks at the answer's text, so that cached answers pass it too."""
        if self.words is not None:
            from foveola.guard.worded import worded

            answer = worded(answer, self.words.current, self._word_action(), tell)
        return answer

    def scrub(self, text: str) -> str:
        """``text`` as it may be written to a log or sent as a message: banned words masked."""
        return text if self.words is None else scrub(self.words.current(), text)

    def _word_action(self) -> Callable[[str], Action | None]:
        routes = routes_of("words_routes", self.options.words_routes, WORD_ACTIONS)
        default = self.options.words_action

        def action_of(route: str) -> Action | None:
            action = routes.get(route, default)
            return None if action == OFF else cast("Action", action)

        return action_of
