"""One question, one answer, for callers that do not stream."""

from __future__ import annotations

from dataclasses import replace

from foveola.engine.engine import Engine
from foveola.exchange import Request, Usage


def answer_once(engine: Engine, request: Request) -> tuple[str, Usage]:
    """The whole text and what it cost. Blocks; raises what ``Engine`` raises."""
    text = []
    for piece in engine.pieces(replace(request, whole=True)):
        text.append(piece.text)
        if piece.usage is not None:
            return "".join(text), piece.usage
    raise AssertionError("an answer ended without its last piece")
