"""An answerer that looks only at pictures whose bytes are known beforehand."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, cast

from foveola.exchange import Answer, Piece, Refusal, Request
from foveola.guard.verdict import ROUTE, Tell, Verdict, nobody


class NotListed(Refusal):
    """The picture is not on the allow-list (403)."""

    code = "image_not_allowed"
    status = 403


class Listing(Protocol):
    """Anything that knows digests."""

    def __contains__(self, digest: bytes) -> bool:
        """Whether it knows this one (32 bytes)."""


ModeOf = Callable[[str], str]


def allowed(answer: Answer, listings: Callable[[], Sequence[Listing]], mode_of: ModeOf, tell: Tell = nobody) -> Answer:
    """``answer`` for pictures that ``admit`` lets in; an unknown one is refused before any work is done on it."""

    async def answering(request: Request) -> AsyncIterator[Piece]:
        await admit(request, listings, mode_of, tell)
        async with aclosing(cast("AsyncGenerator[Piece]", answer(request))) as pieces:
            async for piece in pieces:
                yield piece

    return answering


async def admit(
    request: Request, listings: Callable[[], Sequence[Listing]], mode_of: ModeOf, tell: Tell = nobody
) -> None:
    """Let in pictures whose SHA-256, over the bytes as they were received, is in one of ``listings()``.

    ``mode_of(route)``: ``off``; ``audit``: an unknown picture is told and let in; ``enforce``: it is refused with
    ``NotListed``. Hashing and look-ups run in a thread.
    """
    route = ROUTE.get()
    mode = mode_of(route)
    images = [image for turn in request.turns for image in turn.images]
    if mode == "off" or not images:
        return
    unknown = await asyncio.to_thread(_unknown, images, listings())
    outcome = "passed" if unknown is None else "refused" if mode == "enforce" else "unlisted"
    tell(Verdict("allowlist", outcome, request.id, route, {} if unknown is None else {"sha256": unknown}))
    if outcome == "refused":
        raise NotListed(
            f"The picture with the SHA-256 {unknown} is not on the allow-list; register its bytes, exactly as "
            "they are sent, before asking about it.",
            field="image",
        )


def _unknown(images: Sequence[bytes], listings: Sequence[Listing]) -> str | None:
    """The digest, in hexadecimal, of the first picture that none of ``listings`` knows."""
    for image in images:
        digest = hashlib.sha256(image).digest()
        if not any(digest in listing for listing in listings):
            return digest.hex()
    return None
