"""An answerer whose text has passed the word filter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import cast

from foveola.exchange import Answer, Piece, Request, TokenLogprob
from foveola.guard.verdict import ROUTE, Tell, Verdict, nobody
from foveola.guard.wordfilter import Action, WordStream
from foveola.guard.words import Words


def worded(
    answer: Answer, words: Callable[[], Words], action_of: Callable[[str], Action | None], tell: Tell = nobody
) -> Answer:
    """``answer`` without the banned words of ``words()``; ``action_of(route)`` says what to do, None is off.

    Pieces are merged where text is held back; token counts and log-probabilities are kept. Of tokens told one by one,
    the bytes are left out where text was removed, and so are the likeliest others, which could spell a banned word.
    After ``stop`` nothing more leaves, the engine's answer is read to its end for the usage, and the last piece says
    ``content_filter``.
    """

    async def answering(request: Request) -> AsyncIterator[Piece]:
        route = ROUTE.get()
        action = action_of(route)
        async with aclosing(cast("AsyncGenerator[Piece]", answer(request))) as pieces:
            if action is None:
                async for piece in pieces:
                    yield piece
                return
            passing = _Passing(WordStream(words(), action))
            async for piece in pieces:
                left = passing.through(piece)
                if left is not None and left.finish is not None:
                    tell(_verdict(passing.stream, request.id, route))
                if left is not None:
                    yield left

    return answering


class _Passing:
    """One answer's pieces on their way through the filter."""

    def __init__(self, stream: WordStream) -> None:
        self.stream = stream
        self._tokens = 0
        self._logprob = 0.0
        self._each: tuple[TokenLogprob, ...] = ()
        self._came = self._went = ""  # since the last time that nothing was held back

    def through(self, piece: Piece) -> Piece | None:
        """The piece that may leave now that ``piece`` has come, if any."""
        text = self.stream.feed(piece.text)
        if piece.finish is not None:
            text += self.stream.end()
        self._tokens += piece.tokens
        self._logprob += piece.logprob
        if piece.logprobs:
            self._each += piece.logprobs
        if self._each:
            self._came, self._went = self._came + piece.text, self._went + text
        if not text and piece.finish is None:
            return None
        finish = "content_filter" if piece.finish is not None and self.stream.stopped else piece.finish
        each = self._told() if self._each and (not self.stream.held or piece.finish is not None) else ()
        left = Piece(text, self._tokens, self._logprob, finish, piece.usage, each)
        self._tokens, self._logprob = 0, 0.0
        return left

    def _told(self) -> tuple[TokenLogprob, ...]:
        """The tokens so far as they may be told; tokens whose text is held back wait with it."""
        unchanged = self._came == self._went
        each = tuple(TokenLogprob(one.token if unchanged else b"", one.logprob) for one in self._each)
        self._each, self._came, self._went = (), "", ""
        return each


def _verdict(stream: WordStream, request_id: str, route: str) -> Verdict:
    outcome = {"mask": "masked", "drop": "dropped", "stop": "stopped"}[stream.action] if stream.hits else "passed"
    return Verdict("words", outcome, request_id, route, {"hits": stream.hits, "version": stream.words.version})
