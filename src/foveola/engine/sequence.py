"""One request on the engine's thread: what it has said so far, and what that cost."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foveola.engine.eyes import Seen
from foveola.engine.features import Chunk, Floats, Numbers, Selected
from foveola.engine.mailbox import Mailbox, merged
from foveola.engine.pictures import one_by_one
from foveola.engine.prepared import Prepared
from foveola.engine.sampler import Logits, Sampler
from foveola.engine.speculation import NO_GUESSES, PromptLookup, RunCosts
from foveola.engine.text import Detokeniser, StopStrings, TokenBytes
from foveola.exchange import Evidence, FinishReason, Piece, Request, Stages, TokenLogprob, Usage


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What turning tokens into text needs: the bytes of every token, and which tokens end an answer."""

    table: TokenBytes
    ends: frozenset[int]


@dataclass(slots=True)
class Timeline:
    """Moments of one request on the engine's clock, and seconds of the stages that are not between two of them."""

    arrived: float
    submitted: float = 0.0
    waited_s: float = 0.0  # for a thread that prepares, and for a slot
    vision_s: float = 0.0
    prefill_s: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0

    def stages(self, prepared: Prepared) -> Stages:
        """The times as they are told to the reader."""
        return Stages(
            queue_s=self.waited_s,
            decode_image_s=prepared.decode_image_s,
            preprocess_s=prepared.preprocess_s,
            vision_s=self.vision_s,
            prefill_s=self.prefill_s,
            decode_s=self.last_token - self.first_token,
            first_token_s=self.first_token - self.arrived,
            total_s=self.last_token - self.arrived,
        )


class Guessing(Protocol):
    """A small model that says what a large one may say next; ``draft.Draft`` is one."""

    def guesses(self, sequence: Sequence, most: int) -> tuple[int, ...]:
        """At most ``most`` tokens that may follow what ``sequence`` has said."""


class Sequence:
    """Turns the logits of one request into pieces, until it ends.

    ``length`` counts the tokens in its KV row, ``position`` is where the next token stands, ``token`` that token. While
    its prompt is filled in, ``features`` are those of its first pictures, ``looks`` are under way at the next ones, and
    ``prompt`` is there once all are known.
    """

    def __init__(
        self,
        request: Request,
        prepared: Prepared,
        mailbox: Mailbox,
        timeline: Timeline,
        vocabulary: Vocabulary,
        max_length: int,
        costs: RunCosts = NO_GUESSES,
    ) -> None:
        """``costs`` say whether to guess tokens; without them nothing is guessed."""
        sampling = request.sampling
        self.prepared = prepared
        self.mailbox = mailbox
        self.timeline = timeline
        self.priority = request.priority
        self.client = request.client
        self.deadline_s = math.inf if request.deadline_s is None else request.deadline_s
        self.exact = sampling.temperature > 0 or sampling.logprobs is not None  # any token's probability may count
        self.due = timeline.arrived + self.deadline_s
        self.pictures = one_by_one(prepared.packed)
        self.features: list[Selected] = list(prepared.seen)
        self.looks: list[Future[Seen]] = []
        self.prompt: Chunk | None = None
        self.selected: Selected | None = None
        self.names: Numbers = np.zeros((0, 0), np.int64)
        self.known = 0  # tokens of the prompt that were taken over from an earlier one
        self.overtaken = 0
        self.model_hash = ""
        self.evidence: tuple[Evidence, ...] = ()
        self.length = 0
        self.position = prepared.next_position
        self.token = 0
        self.finished = False
        self.said: list[int] = []
        self.ends = vocabulary.ends
        self._sampler = Sampler(sampling)
        self._detokeniser = Detokeniser(vocabulary.table)
        self._stops = StopStrings(sampling.stop)
        # Prompt and answer share one KV row; an answer that fills it ends with "length".
        self._limit = min(sampling.max_tokens, max_length - prepared.length)
        self.cost = prepared.length + self._limit
        self._drawn = 0
        self._unsent_tokens = 0
        self._unsent_logprob = 0.0
        self._told = sampling.logprobs
        self._table = vocabulary.table
        self._unsent_each: list[TokenLogprob] = []
        self._lookup = PromptLookup(prepared.ids.tolist(), costs) if costs.seconds else None

    @property
    def queued_at(self) -> float:
        """Since when it waits."""
        return self.timeline.submitted

    @property
    def unfilled(self) -> int:
        """Tokens of the prompt that are not in the KV row yet, as far as is known."""
        return (self.prepared.length if self.prompt is None else len(self.prompt.ids)) - self.length

    @property
    def sighted(self) -> bool:
        """Whether the features of all its pictures are known. What another service saw came with the prompt, and there
        are no pictures then."""
        return len(self.features) >= len(self.pictures)

    def began(self, model_hash: str, now: float) -> None:
        """It has a slot, with the weights that ``model_hash`` names."""
        self.model_hash = model_hash
        self.timeline.waited_s += now - self.timeline.submitted

    def lay_out(self, prompt: Chunk, selected: Selected | None, names: Numbers) -> None:
        """All pictures are encoded, and this is what the decoder will read."""
        self.prompt, self.selected, self.names = prompt, selected, names

    def prefilled(self, tokens: int) -> None:
        """The first ``tokens`` of the prompt are in the KV row."""
        self.length = tokens

    def decoded(self) -> None:
        """The token drawn last is in the KV row."""
        self.length += 1
        self.position += 1

    @property
    def words(self) -> list[int]:
        """The prompt without pictures, as far as it is known."""
        if self.prompt is None:
            return []
        words: list[int] = np.delete(self.prompt.ids, self.prompt.rows).tolist()
        return words

    def guesses(self, room: int, draft: Guessing | None = None) -> tuple[int, ...]:
        """Tokens that may well come next, no more than there is ``room`` for in the KV row: what stood behind the same
        words before, or else what ``draft`` would say."""
        if self._lookup is None:
            return ()
        most = min(room, self._limit - self._drawn - 1)
        found = self._lookup.guesses(most)
        return found if found or draft is None or most < 1 else draft.guesses(self, most)

    def draw(self, logits: Floats, guesses: tuple[int, ...], now: float) -> Piece | None:
        """The next tokens: one from ``logits[0]``, and as long as ``guesses`` are right one from each further row.

        The piece that they complete, if any. Raises ``Unavailable``.
        """
        piece = self.accept(logits[0], now)
        for guess, row in zip(guesses, logits[1:], strict=True):
            if self.finished or self.token != guess:
                break
            self.decoded()
            following = self.accept(row, now)
            if following is not None:
                piece = following if piece is None else merged(piece, following)
        return piece

    def accept(self, logits: Logits, now: float) -> Piece | None:
        """Draw the next token at time ``now``; the piece that it completes, if any. Raises ``Unavailable``."""
        self.token, logprob = self._sampler.draw(logits)
        if not self._drawn:
            self.timeline.first_token = now
        self.timeline.last_token = now
        self._drawn += 1
        self.said.append(self.token)
        if self._lookup is not None:
            self._lookup.push(self.token)
        self._unsent_tokens += 1
        self._unsent_logprob += logprob
        if self._told is not None:
            self._unsent_each.append(self._logprob(logits, logprob))
        ended = self.token in self.ends
        text = "" if ended else self._stops.push(self._detokeniser.push(self.token))
        if ended or self._stops.stopped or self._drawn >= self._limit:
            text += self._stops.push(self._detokeniser.flush())
            text += self._stops.flush()
            return self._finish(text, "stop" if ended or self._stops.stopped else "length")
        return self._piece(text) if text else None

    def _finish(self, text: str, reason: FinishReason) -> Piece:
        self.finished = True
        usage = Usage(
            prompt_tokens=self.prepared.length,
            visual_tokens=len(self.prepared.visual) - self.prepared.left_out,
            completion_tokens=self._drawn,
            images=self.prepared.images,
            stages=self.timeline.stages(self.prepared),
            evidence=self.evidence,
            model_hash=self.model_hash,
            cached_tokens=self.known,
            visual_prompt=None if self.prepared.prompt is None else self.prepared.prompt.use,
        )
        return self._piece(text, reason, usage)

    def _piece(self, text: str, finish: FinishReason | None = None, usage: Usage | None = None) -> Piece:
        each = tuple(self._unsent_each)
        piece = Piece(text, self._unsent_tokens, self._unsent_logprob, finish, usage, each)
        self._unsent_tokens = 0
        self._unsent_logprob = 0.0
        self._unsent_each.clear()
        return piece

    def _logprob(self, logits: Logits, logprob: float) -> TokenLogprob:
        """The token drawn last as it is told to whoever asked."""
        likeliest = self._sampler.top(logits, self._told) if self._told else []
        return TokenLogprob(self._table[self.token], logprob, tuple((self._table[token], p) for token, p in likeliest))
