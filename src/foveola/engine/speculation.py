"""Several tokens in one run: guess what comes next from the text so far, let the model check all guesses at once.

Prompt look-up (Saxena 2023; LLMA, Yang et al. 2023): where the last tokens stood before, what followed them then is
the guess. A label that is read out, a list, a repeated phrase: such text is guessed well, and free. Where there is no
such place, a small model may guess (``draft.py``).

The text stays what it is without. The model's own next token is drawn at every place, from the same logits and with
the same random numbers as without a guess; a guess only decides how many places one run may look at. Drawing at the
first place where guess and draw differ ends the run. For a guess that is one certain token this is speculative sampling
(Leviathan et al. 2023) itself: accepted with the probability that the model gives it.

A run over several tokens costs more than one over a single token, by factors that the bundle's plan has measured. So
the number of guesses follows from how often they have been right in this answer, and is often none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foveola.exchange import Damaged

LONGEST, SHORTEST = 4, 2
"""Tokens that must have stood before, in the same order."""
FIRST_TRUST = 0.5
"""How often guesses are right, until some have been checked."""
MEMORY = 0.85
"""How much of the trust so far remains after one more guess was checked."""


@dataclass(frozen=True, slots=True)
class RunCosts:
    """``seconds[k-1]`` is what one run over ``k`` tokens of one request takes, measured on the target."""

    seconds: tuple[float, ...]

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> RunCosts:
        """What a bundle's plan has measured; nothing where it has not, or where the plan says that guesses would change
        the text (``guess`` is false). Raises ``Damaged``."""
        seconds = plan.get("run_seconds", [])
        if not isinstance(seconds, list) or not all(isinstance(s, int | float) and 0 < s < math.inf for s in seconds):
            raise Damaged("model.json: plan.run_seconds is a list of seconds; measure the plan anew.")
        return cls(tuple(seconds) if plan.get("guess", True) else ())

    def guesses(self, trust: float, guess_s: float = 0.0) -> int:
        """How many guesses make the most tokens per second when each is right with probability ``trust`` and takes
        ``guess_s`` seconds to make."""
        if not self.seconds:
            return 0
        places = np.arange(len(self.seconds))
        tokens = np.cumsum(trust**places)
        return int(np.argmax(tokens / (np.asarray(self.seconds) + guess_s * places)))


NO_GUESSES = RunCosts(())
"""Nothing was measured, so nothing is guessed."""


class PromptLookup:
    """Guesses for one request from its own prompt and answer; what stands last counts first."""

    def __init__(self, history: Sequence[int], costs: RunCosts) -> None:
        self._costs = costs
        self._history: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> where what followed it last time begins
        self._guess: int | None = None
        self.trust = FIRST_TRUST
        for token in history:
            self._append(token)

    def push(self, token: int) -> None:
        """``token`` was drawn."""
        if self._guess is not None:
            self.trust = MEMORY * self.trust + (1 - MEMORY) * (token == self._guess)
        self._append(token)
        self._guess = self._next(self._history)

    def guesses(self, most: int) -> tuple[int, ...]:
        """The tokens to check behind the one drawn last: at most ``most``, none where it would not pay."""
        number = min(most, self._costs.guesses(self.trust))
        if number < 1 or self._guess is None:
            return ()
        start = self._start(self._history)
        assert start is not None
        return tuple(self._history[start : start + number])

    def _append(self, token: int) -> None:
        # The n-grams that end before this token are followed by it.
        at = len(self._history)
        for size in range(SHORTEST, min(LONGEST, at) + 1):
            self._after[tuple(self._history[at - size :])] = at
        self._history.append(token)

    def _start(self, history: list[int]) -> int | None:
        for size in range(min(LONGEST, len(history)), SHORTEST - 1, -1):
            start = self._after.get(tuple(history[-size:]))
            if start is not None:
                return start
        return None

    def _next(self, history: list[int]) -> int | None:
        start = self._start(history)
        return None if start is None else history[start]
