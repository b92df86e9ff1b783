"""The JSON that goes over the wire, as pydantic models: what is checked is what the OpenAPI document says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_TEXT_CHARS = 32_768
MAX_STOPS = 16
MAX_STOP_CHARS = 256

# What is expected of each field, in words: the description in the OpenAPI document and the end of the error message.
EXPECTED = {
    "text": f"text of 1 to {MAX_TEXT_CHARS} characters, not only white space",
    "max_tokens": "a whole number from 1 to 1048576, within the model's context",
    "temperature": "a number from 0 (always the likeliest token) to 100",
    "top_p": "a number above 0 and at most 1",
    "top_k": "a whole number from 0 (off) to 2147483647",
    "stop": f"a string or a list of at most {MAX_STOPS} strings, each of 1 to {MAX_STOP_CHARS} characters",
    "seed": "a whole number from 0 to 18446744073709551615",
    "visual_tokens": "a whole number from 1 to 1048576: how many visual tokens of each picture the decoder reads",
    "visual_prompt": "the name of a visual prompt of this server, 1 to 64 letters, digits, `.`, `_` or `-`",
    "evidence": "true or false: tell in `usage` where in the picture the model looked",
    "prompt": "an object with `text`, or a string",
    "image": "a string: the picture's bytes in base64, or a data URL",
}

PromptName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


def _expected(name: str, **limits: Any) -> Any:
    return Field(description=EXPECTED[name], **limits)


class Prompt(BaseModel):
    """What is asked. A field that is missing or null has its default; an unknown field is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: str = _expected("text", min_length=1, max_length=MAX_TEXT_CHARS, pattern=r"\S")
    max_tokens: Annotated[int, _expected("max_tokens", ge=1, le=1_048_576)] | None = None
    temperature: Annotated[float, _expected("temperature", ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, _expected("top_p", gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, _expected("top_k", ge=0, le=2_147_483_647)] | None = None
    stop: Annotated[Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)], _expected("stop")] | None = None
    seed: Annotated[int, _expected("seed", ge=0, le=2**64 - 1)] | None = None
    visual_tokens: Annotated[int, _expected("visual_tokens", ge=1, le=1_048_576)] | None = None
    visual_prompt: Annotated[PromptName, _expected("visual_prompt")] | None = None
    evidence: Annotated[bool, _expected("evidence")] | None = None


PlainPrompt = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS, pattern=r"\S")]


class JsonInvoke(BaseModel):
    """The JSON form of a question."""

    model_config = ConfigDict(extra="forbid")

    prompt: Prompt | PlainPrompt = _expected("prompt")
    image: str | None = _expected("image", default=None)


class ImageUse(BaseModel):
    """What became of one picture; sizes are [width, height] in pixels after orientation."""

    original: tuple[int, int]
    used: tuple[int, int]
    tokens: int
    kept: int | None = Field(default=None, description="tokens that the decoder read; null for all of them")
    unbounded: int = Field(description="tokens it would have made alone: more than `tokens` where it was shrunk to fit")
    tiles: int = Field(description="parts that an elongated picture is shown in; 1 for a whole one")
    thumbnail: tuple[int, int] | None = Field(default=None, description="size shown before the tiles; null without")


class Stages(BaseModel):
    """Seconds per stage of the engine."""

    queue_s: float
    decode_image_s: float
    preprocess_s: float
    vision_s: float
    prefill_s: float
    decode_s: float
    first_token_s: float
    total_s: float


class Evidence(BaseModel):
    """Where in one picture the last position of the prompt looked: a share of attention for each visual token.

    ``grid`` is [rows, columns]; ``weights`` are row by row and sum up to ``mass``.
    """

    grid: tuple[int, int]
    mass: float
    weights: list[float]


class Route(BaseModel):
    """Which of several engines answered, and why; ``confidence`` is that of the small one, 0..1."""

    engine: str
    reason: str
    confidence: float | None
    asked: list[str]


class PromptUse(BaseModel):
    """The visual prompt that stood before the first picture; its tokens are part of the prompt's."""

    name: str
    hash: str = Field(description="of the prompt's seal: another one where it was replaced")
    tokens: int


class Usage(BaseModel):
    """What the answer cost; visual tokens are part of the prompt's."""

    prompt_tokens: int
    visual_tokens: int
    completion_tokens: int
    total_tokens: int
    images: list[ImageUse]
    stages: Stages
    visual_prompt: PromptUse | None = Field(default=None, description="left out where there was none")
    route: Route | None = Field(default=None, description="left out where one engine answers everything")
    evidence: list[Evidence] | None = Field(default=None, description="one entry per picture, where it was asked for")


class Reply(BaseModel):
    """An answer. ``latency_ms`` counts from the arrival of the request's headers to the last token."""

    id: str
    text: str
    finish_reason: Literal["stop", "length", "cancelled", "content_filter"]
    latency_ms: float
    model: str
    model_hash: str
    usage: Usage


class Counted(BaseModel):
    """What a question would cost; ``budget_tokens`` is what prompt and longest answer take of the context together."""

    prompt_tokens: int
    visual_tokens: int
    max_tokens: int
    budget_tokens: int
    images: list[ImageUse]


class Delta(BaseModel):
    """The data of a ``delta`` event of a stream."""

    delta: str


class ErrorDetail(BaseModel):
    """Why not: a stable code, a message for a person, and the field that is to blame where there is one."""

    code: str
    message: str
    field: str | None = Field(default=None, description="left out where no single field is to blame")


class Error(BaseModel):
    """The shape of every refusal."""

    error: ErrorDetail


class Model(BaseModel):
    """One model, in OpenAI's list form, with the hash of its bundle."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Unix seconds")
    owned_by: str
    model_hash: str


class ModelList(BaseModel):
    """The models that this server answers with."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(BaseModel):
    """State of the process."""

    status: Literal["ok"]


class Version(BaseModel):
    """What is running."""

    version: str
    runtime: str = Field(description="onnxruntime's version")
    model: str | None = Field(description="null while loading")
    model_hash: str | None = Field(description="null while loading")
