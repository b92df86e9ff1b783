"""One request on the engine's thread: what it has said so far, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

from foveola.engine.mailbox import Mailbox
from foveola.engine.prepared import Prepared
from foveola.engine.sampler import Logits, Sampler
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


class Sequence:
    """Turns the logits of one request into pieces, until it ends.

    ``length`` counts the tokens in its KV row, ``position`` is where the next token stands, ``token`` that token.
    """

    def __init__(
        self,
        request: Request,
        prepared: Prepared,
        mailbox: Mailbox,
        timeline: Timeline,
        vocabulary: Vocabulary,
        max_length: int,
    ) -> None:
        sampling = request.sampling
        self.prepared = prepared
        self.mailbox = mailbox
        self.timeline = timeline
        self.evidence: tuple[Evidence, ...] = ()
        self.length = 0
        self.position = prepared.next_position
        self.token = 0
        self.finished = False
        self._ends = vocabulary.ends
        self._sampler = Sampler(sampling)
        self._detokeniser = Detokeniser(vocabulary.table)
        self._stops = StopStrings(sampling.stop)
        # Prompt and answer share one KV row; an answer that fills it ends with "length".
        self._limit = min(sampling.max_tokens, max_length - len(prepared.ids))
        self._drawn = 0
        self._unsent_tokens = 0
        self._unsent_logprob = 0.0
        self._told = sampling.logprobs
        self._table = vocabulary.table
        self._unsent_each: list[TokenLogprob] = []

    def prefilled(self, tokens: int) -> None:
        """The prompt, ``tokens`` long after selection, is in the KV row."""
        self.length = tokens

    def decoded(self) -> None:
        """The token drawn last is in the KV row."""
        self.length += 1
        self.position += 1

    def accept(self, logits: Logits, now: float) -> Piece | None:
        """Draw the next token at time ``now``; the piece that it completes, if any. Raises ``Unavailable``."""
        self.token, logprob = self._sampler.draw(logits)
        if not self._drawn:
            self.timeline.first_token = now
        self.timeline.last_token = now
        self._drawn += 1
        self._unsent_tokens += 1
        self._unsent_logprob += logprob
        if self._told is not None:
            self._unsent_each.append(self._logprob(logits, logprob))
        ended = self.token in self._ends
        text = "" if ended else self._stops.push(self._detokeniser.push(self.token))
        if ended or self._stops.stopped or self._drawn >= self._limit:
            text += self._stops.push(self._detokeniser.flush())
            text += self._stops.flush()
            return self._finish(text, "stop" if ended or self._stops.stopped else "length")
        return self._piece(text) if text else None

    def _finish(self, text: str, reason: FinishReason) -> Piece:
        self.finished = True
        usage = Usage(
            prompt_tokens=len(self.prepared.ids),
            visual_tokens=len(self.prepared.visual),
            completion_tokens=self._drawn,
            images=self.prepared.images,
            stages=self.timeline.stages(self.prepared),
            evidence=self.evidence,
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
