"""What passes over the counter: a Request goes in, Pieces come out, or a Refusal says why not.

Everything here is frozen data without logic. An *answerer* is any callable of the shape ``Answer``;
an engine is one, and a cache, a guard or an observer wraps one and is one again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal

NO_CAMERA = "-"
"""The camera of a picture that none took: whoever watches cameras does not look at it."""

FinishReason = Literal["stop", "length", "cancelled", "content_filter"]
"""``content_filter``: the word filter ended the answer."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 are off.

    ``logprobs`` asks for every token's log-probability, and for those of so many likelier or next likely ones; None
    asks for nothing.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation. ``images`` hold encoded files, shown before the text of the turn.

    Where the order is another one, ``parts`` is it: texts, and the index of each picture, ascending; ``text`` is then
    all texts together.
    """

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[bytes, ...] = ()
    parts: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A question about zero or more pictures. ``turns`` ends with the user's.

    At most ``visual_tokens`` of each picture reach the decoder; None leaves it to the bundle. Higher ``priority`` goes
    first; of equal ones, each ``client`` gets its share. After ``deadline_s`` seconds nobody waits for the answer.
    ``trace`` is the W3C ``traceparent`` that came with it, ``span`` the one for whoever is asked because of it.
    ``visual_prompt`` names learnt rows that stand before the
    first picture; empty for none. ``camera`` took the picture; empty where that was not said, ``NO_CAMERA`` for none.
    ``whole``: nobody reads the answer before its end, so that its pieces may come late and merged.
    """

    id: str
    turns: tuple[Turn, ...]
    sampling: Sampling = field(default_factory=Sampling)
    visual_tokens: int | None = None
    priority: int = 0
    client: str = ""
    deadline_s: float | None = None
    trace: str = ""
    visual_prompt: str = ""
    camera: str = ""
    span: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ImageUse:
    """What became of one picture: sizes are (width, height) in pixels, after orientation.

    ``tokens`` is how many visual tokens its size makes, ``kept`` how many of them the decoder read; None for all.
    ``unbounded`` is how many it would have made had nothing else been in the prompt: more than ``tokens`` says that it
    was shrunk to fit. An elongated picture is shown in ``tiles`` parts, together ``used``, after a ``thumbnail``.
    """

    original: tuple[int, int]
    used: tuple[int, int]
    tokens: int
    kept: int | None = None
    unbounded: int = 0
    tiles: int = 1
    thumbnail: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds spent per stage; ``total_s`` is wall time from arrival in the engine to the last piece."""

    queue_s: float = 0.0
    decode_image_s: float = 0.0
    preprocess_s: float = 0.0
    vision_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    first_token_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Attention of the last prompt position over one picture's visual tokens, at the bundle's evidence layer.

    ``weights`` are row-major over ``grid`` = (rows, columns) of visual tokens and sum to ``mass``, the share
    of all attention that fell on this picture (0..1). ``summary`` is the mean of the picture's visual features;
    ``texture`` says how the picture is encoded (``foveola.intake.texture``), nothing where somebody else decoded it.
    """

    grid: tuple[int, int]
    weights: tuple[float, ...]
    mass: float
    summary: tuple[float, ...] = ()
    texture: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """How an answer came about where several engines could give it.

    ``engine`` gave it, because of ``reason``; ``confidence`` 0..1 is that of the small engine's answer, None where it
    gave none; ``asked`` are the engines that were asked, in order.
    """

    engine: str
    reason: str
    confidence: float | None = None
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptUse:
    """The visual prompt that an answer was given under: its name, the hash of its seal, and how many tokens it took."""

    name: str
    hash: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost. Token counts are what the decoder read: they include the chat template, and the visual
    tokens that were kept, which ``visual_tokens`` counts; ``images`` tell how many there were before.

    ``model_hash`` is that of the weights that gave the answer, all of it; empty where they cannot change.
    ``cached_tokens`` of the prompt were known from before and not computed again. ``visual_prompt`` is the one that was
    applied; its tokens are part of ``prompt_tokens``, not of ``visual_tokens``.
    """

    prompt_tokens: int
    visual_tokens: int
    completion_tokens: int
    images: tuple[ImageUse, ...] = ()
    stages: Stages = field(default_factory=Stages)
    evidence: tuple[Evidence, ...] = ()
    model_hash: str = ""
    route: Route | None = None
    cached_tokens: int = 0
    visual_prompt: PromptUse | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of an answer: its bytes (none for a control token), the natural log of the probability that the model
    gave it, and the likeliest tokens at its place, likeliest first, where they were asked for."""

    token: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer. The last piece, and only the last, has ``finish`` and ``usage``.

    ``text`` never splits a character. ``logprob`` is the sum over the tokens that this piece completed; ``logprobs``
    has them one by one where the request asked for them.
    """

    text: str
    tokens: int = 0
    logprob: float = 0.0
    finish: FinishReason | None = None
    usage: Usage | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


Answer = Callable[[Request], AsyncIterator[Piece]]


class Refusal(Exception):
    """A request that cannot be served, told to whoever asked.

    ``message`` says what came, what was expected, and what to do next; it never holds an address, a path of
    this machine or a library's trace. ``status`` is the HTTP status that a server replies with.
    """

    code = "refused"
    status = 400

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class BadImage(Refusal):
    """The bytes are not a picture that may be decoded here (400)."""

    code = "bad_image"
    status = 400


class TooLarge(Refusal):
    """More bytes or more pixels than the limits allow (413)."""

    code = "too_large"
    status = 413


class BadRequest(Refusal):
    """The request has the wrong form: not JSON, no boundary, a missing part (400)."""

    code = "bad_request"
    status = 400


class Unsupported(Refusal):
    """A content type or picture format that is not served (415)."""

    code = "unsupported_media_type"
    status = 415


class Invalid(Refusal):
    """A field has a value outside its range; ``field`` names it (422)."""

    code = "invalid_field"
    status = 422


class OverBudget(Refusal):
    """The prompt does not fit the model's context even after everything allowed was tried (422)."""

    code = "over_budget"
    status = 422


class Busy(Refusal):
    """The queue is full; come back after ``retry_after_s`` (429)."""

    code = "busy"
    status = 429

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Late(Refusal):
    """The request's own deadline passed before its answer was complete (504)."""

    code = "late"
    status = 504


class Unavailable(Refusal):
    """The engine is stopping or dead (503)."""

    code = "unavailable"
    status = 503


class Damaged(Refusal):
    """An artefact on disk is not what its manifest says; ``message`` names the file (500 at load, never served)."""

    code = "damaged_artefact"
    status = 500
