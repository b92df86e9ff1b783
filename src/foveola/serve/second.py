"""A second engine beside the one that is loaded: together they are one answerer, each can be asked by its own name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from foveola.exchange import Answer, Piece, Request
from foveola.serve.dual_options import SecondOptions
from foveola.serve.service import Served

if TYPE_CHECKING:
    from foveola.engine.engine import Engine

BOTH = "auto"  # the name of the two together


def with_second(small: Served, engine: Engine, second: SecondOptions, around: Callable[[Answer], Answer]) -> Served:
    """``small`` and a large engine as one. Blocks; raises ``Damaged`` or ``Unavailable``.

    ``around`` wraps an answer with guards and observer; ``engine`` is the bare one of ``small``.
    """
    from foveola.artifact import Bundle
    from foveola.engine.dual import Dual, DualOptions
    from foveola.engine.dual_confidence import read_confidence
    from foveola.engine.engine import Engine

    assert second.confidence is not None  # SecondOptions sees to it
    confidence = read_confidence(second.confidence, small.model_hash)
    large: Answer
    if second.bundle is not None:
        bundle = Bundle.open(second.bundle)
        other = Engine.open(bundle)
        large, name, model_hash = other, bundle.name, bundle.model_hash
    else:
        from foveola.serve.afar import RemoteAnswer
        from foveola.serve.load import key_in

        other = None
        remote = RemoteAnswer(second.url, key_in(second.key_file))
        large, name, model_hash = remote, remote.model, remote.model_hash
    if name == small.name:
        name = f"{name}-large"
    settings = {field.name: getattr(second, field.name) for field in fields(DualOptions)}
    dual = Dual(
        (small.name, engine, small.model_hash),
        (name, _unprompted(large), model_hash),
        confidence,
        confidence.threshold,
        DualOptions(**settings),
    )

    def ailment() -> str | None:
        """Nobody is ill as long as one of the two can answer."""
        own = small.ailment()
        return own if own is not None and other is not None and other.health().ailment is not None else None

    def close() -> None:
        small.close()
        if other is not None:
            other.close(1.0)

    others = {small.name: small.answer, name: around(large)}
    return replace(small, name=BOTH, answer=around(dual), others=others, ailment=ailment, close=close)


def _unprompted(answer: Answer) -> Answer:
    """``answer`` without visual prompts: they belong to the small model's weights. ``usage`` tells that there was
    none."""

    def asked(request: Request) -> AsyncIterator[Piece]:
        return answer(replace(request, visual_prompt=""))

    return asked
