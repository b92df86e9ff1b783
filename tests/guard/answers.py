"""Answerers that tests steer, and reading one to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from foveola.exchange import Answer, Piece, Request, TokenLogprob, Turn, Usage

USAGE = Usage(prompt_tokens=5, visual_tokens=0, completion_tokens=3)


def saying(*texts: str, logprobs: bool = False) -> Answer:
    """Says ``texts``, one token each, then ends."""

    async def answer(request: Request) -> AsyncIterator[Piece]:
        for text in texts:
            each = (TokenLogprob(text.encode(), -0.5, ((b"bomb", -0.1),)),) if logprobs else ()
            yield Piece(text, 1, -0.5, logprobs=each)
        yield Piece("", 0, finish="stop", usage=USAGE)

    return answer


def asking(text: str = "what?", *images: bytes) -> Request:
    return Request("job-1", (Turn("user", text, images),))


async def pieces_of(answer: Answer, request: Request | None = None) -> Sequence[Piece]:
    return [piece async for piece in answer(request or asking())]
