"""A small model guesses for a large one: speculative decoding (Leviathan et al. 2023; Chen et al. 2023).

The small model reads the words of a request and what was said so far, and says what it would say next; the large one
checks that in one run (``speculation.py``). It sees no pictures, which for guessing words after words is little loss
(Gagrani et al. 2024) and saves a second vision tower. A guess is the small model's likeliest token, also where the
request is sampled: the large model's own draw decides, so its distribution is untouched, whatever is guessed.

How many tokens are guessed follows from how often guesses were right in this answer, from what a run of the large model
over several tokens costs, by its bundle's plan, and from what the small one takes for one; it is often none.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import numpy as np

from foveola.artifact import Bundle
from foveola.engine.features import Chunk
from foveola.engine.options import EngineOptions
from foveola.engine.redzones import MemoryOverrun
from foveola.engine.runner import OrtRunner, Runner
from foveola.engine.sequence import Sequence
from foveola.engine.sessions import open_sessions
from foveola.engine.speculation import FIRST_TRUST, MEMORY, RunCosts
from foveola.engine.text import TokenBytes
from foveola.exchange import Invalid

log = logging.getLogger(__name__)

ROW = 0
STEPS = 5  # that are timed at the start, of which the median counts


class Draft:
    """Owns the small model and its one KV row, which holds the text of whoever was guessed for last. Used by the
    engine's thread only; a failure of the small model ends the guessing and no answer."""

    def __init__(self, runner: Runner, costs: RunCosts, step_s: float, axes: int = 3) -> None:
        """``costs`` are those of the large model's runs, ``step_s`` the seconds that the small one takes per token."""
        self._runner = runner
        self._costs = costs
        self._step_s = step_s
        self._axes = axes
        self._known: list[int] = []  # the tokens in the row
        self._owner: Sequence | None = None
        self._guessed: tuple[int, tuple[int, ...]] = (0, ())  # the guesses not judged yet, and how much was said then
        self.trust = FIRST_TRUST
        self.broken = False

    @classmethod
    def open(cls, bundle: Bundle | Path, target: Bundle, options: EngineOptions) -> Draft:
        """Open ``bundle`` to guess for ``target``. Raises ``Invalid`` where their tokens differ, ``Damaged``."""
        bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        tables = [TokenBytes(one.read("tokenizer.json").decode()) for one in (bundle, target)]
        sizes = [int(one.model["text"]["vocab_size"]) for one in (bundle, target)]
        if sizes[0] != sizes[1] or any(tables[0][token] != tables[1][token] for token in range(sizes[0])):
            raise Invalid(
                f"{bundle.name} cannot guess for {target.name}: their tokens differ. Name a smaller model with "
                "the same tokenizer as `draft`, or none.",
                field="draft",
            )
        settings = EngineOptions(
            threads=options.threads,
            spin_us=options.spin_us,
            slots=1,
            two_layouts=False,  # it reads a few tokens at a time
            provider=options.provider,
        )
        runner = OrtRunner(bundle, settings, open_sessions(bundle, settings, without=("vision",)))
        axes = int(bundle.model["text"].get("position_axes", 3))
        return cls(runner, RunCosts.of(target.model.get("plan", {})), _step_seconds(runner), axes)

    def guesses(self, sequence: Sequence, most: int) -> tuple[int, ...]:
        """The tokens to check behind the one drawn last: at most ``most``, none where it would not pay."""
        if self.broken:
            return ()
        if sequence is not self._owner:
            self._owner, self._guessed, self.trust = sequence, (0, ()), FIRST_TRUST
        self._judge(sequence.said)
        number = min(most, self._costs.guesses(self.trust, self._step_s))
        history = sequence.words + sequence.said
        if number < 1 or len(history) + number > self._runner.max_length:
            return ()
        try:
            found = self._say(history, number, sequence.ends)
        except MemoryOverrun:
            raise
        except Exception:
            log.exception("the small model failed and guesses no more")
            self.broken = True
            return ()
        self._guessed = (len(sequence.said), found)
        return found

    def _judge(self, said: list[int]) -> None:
        """What the large model said since then instead of the last guesses, up to the first that was wrong."""
        start, guessed = self._guessed
        for guess, token in zip(guessed, said[start:], strict=False):
            self.trust = MEMORY * self.trust + (1 - MEMORY) * (guess == token)
            if guess != token:
                break
        self._guessed = (len(said), ())

    def _say(self, history: list[int], number: int, ends: frozenset[int]) -> tuple[int, ...]:
        start = min(_common(self._known, history), len(history) - 1)
        self._known = history[:start]
        ids = np.array(history[start:], np.int64)
        positions = np.tile(np.arange(start, len(history)), (self._axes, 1))
        logits, _ = self._runner.prefill(ROW, Chunk(ids, positions, start, ids[:0], None))
        self._known = list(history)
        found = [int(logits.argmax())]
        while len(found) < number and found[-1] not in ends:
            length = len(self._known)
            logits = self._runner.decode([found[-1]], [length], [length])[0]
            self._known.append(found[-1])
            found.append(int(logits.argmax()))
        return tuple(found)


def _common(first: list[int], second: list[int]) -> int:
    """How many tokens are the same from the beginning on."""
    shorter = min(len(first), len(second))
    differing = np.flatnonzero(np.array(first[:shorter]) != np.array(second[:shorter]))
    return int(differing[0]) if differing.size else shorter


def _step_seconds(runner: Runner) -> float:
    spent = []
    for step in range(STEPS):
        started = time.perf_counter()
        runner.decode([0], [2 + step], [2 + step])
        spent.append(time.perf_counter() - started)
    return float(np.median(spent))
