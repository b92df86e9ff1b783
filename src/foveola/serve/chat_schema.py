"""The JSON of ``/v1/chat/completions``: OpenAI's names as far as they mean something here; the rest is refused by name.

Fields that only say who asks, or how a hosted service should bill, are taken and left alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from foveola.serve.schema import (
    EXPECTED,
    MAX_TEXT_CHARS,
    Evidence,
    ImageUse,
    PromptName,
    PromptUse,
    Route,
    Stages,
    Stop,
)

MAX_MESSAGES = 128
MAX_PARTS = 64
MAX_TOP_LOGPROBS = 20

CHAT_EXPECTED = {
    "model": "the id of a model that /v1/models lists",
    "messages": f"a list of 1 to {MAX_MESSAGES} messages, the last of which is the user's",
    "role": "`system`, `developer`, `user` or `assistant`",
    "content": f"text, or a list of 1 to {MAX_PARTS} parts of type `text` and `image_url`",
    "type": "`text` or `image_url`",
    "text": f"text of at most {MAX_TEXT_CHARS} characters",
    "image_url": "a base64 data URL, or an object with it as `url`",
    "url": "a base64 data URL such as data:image/png;base64,...",
    "detail": "`auto`, `low` or `high`",
    **{
        name: EXPECTED[name]
        for name in (
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "stop",
            "seed",
            "visual_tokens",
            "visual_prompt",
            "evidence",
        )
    },
    "max_completion_tokens": EXPECTED["max_tokens"],
    "n": "1: one answer per request",
    "stream": "true or false",
    "stream_options": "an object with `include_usage`, with `stream` true",
    "include_usage": "true or false",
    "include_obfuscation": "true or false; nothing is obfuscated here",
    "logprobs": "true or false",
    "top_logprobs": f"a whole number from 0 to {MAX_TOP_LOGPROBS}, with `logprobs` true",
    "frequency_penalty": "0: repetition is not punished here",
    "presence_penalty": "0: repetition is not punished here",
    "logit_bias": "an empty object: tokens are not biased here",
    "response_format": "an object of type `text`",
    "response_format.type": "`text`: answers are not held to a form here",
    "tools": "an empty list: there are no tools here",
}
_NOTHING: Any = Field(default=None, exclude=True)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _expected(name: str, **limits: Any) -> Any:
    return Field(description=CHAT_EXPECTED[name], **limits)


class ImageUrl(_Strict):
    """A picture in a message. Where all are ``low``, a model that can do with fewer visual tokens gets fewer."""

    url: str = _expected("url", min_length=1)
    detail: Annotated[Literal["auto", "low", "high"], _expected("detail")] | None = None


class Part(_Strict):
    """A part of a message: text, or a picture."""

    type: Literal["text", "image_url"] = _expected("type")
    text: Annotated[str, _expected("text", max_length=MAX_TEXT_CHARS)] | None = None
    image_url: Annotated[ImageUrl | str, _expected("image_url")] | None = None


class Message(_Strict):
    """One message of a conversation. What OpenAI's clients send along as null is taken as null."""

    role: Literal["system", "developer", "user", "assistant"] = _expected("role")
    content: (
        Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
        | Annotated[list[Part], Field(min_length=1, max_length=MAX_PARTS)]
    ) = _expected("content")
    name: str | None = Field(default=None, description="taken and not used")
    refusal: None = _NOTHING
    annotations: None = _NOTHING
    audio: None = _NOTHING
    function_call: None = _NOTHING
    tool_calls: None = _NOTHING


class StreamOptions(_Strict):
    """How a stream is told."""

    include_usage: bool = Field(default=False, description="one more chunk before the end, with the usage")
    include_obfuscation: bool = Field(default=False, description=CHAT_EXPECTED["include_obfuscation"])


class ResponseFormat(_Strict):
    """The only form of an answer."""

    type: Literal["text"]


class Chat(_Strict):
    """A question in OpenAI's form. A field that is missing or null has its default; ``temperature`` is 0 then."""

    model: str = _expected("model", min_length=1, max_length=200)
    messages: list[Message] = _expected("messages", min_length=1, max_length=MAX_MESSAGES)
    max_tokens: Annotated[int, _expected("max_tokens", ge=1, le=1_048_576)] | None = None
    max_completion_tokens: Annotated[int, _expected("max_completion_tokens", ge=1, le=1_048_576)] | None = None
    temperature: Annotated[float, _expected("temperature", ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, _expected("top_p", gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, _expected("top_k", ge=0, le=2_147_483_647)] | None = None
    stop: Annotated[Stop | Annotated[list[Stop], Field(max_length=16)], _expected("stop")] | None = None
    seed: Annotated[int, _expected("seed", ge=0, le=2**64 - 1)] | None = None
    n: Annotated[int, _expected("n", ge=1, le=1)] | None = None
    stream: Annotated[bool, _expected("stream")] | None = None
    stream_options: Annotated[StreamOptions, _expected("stream_options")] | None = None
    logprobs: Annotated[bool, _expected("logprobs")] | None = None
    top_logprobs: Annotated[int, _expected("top_logprobs", ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    frequency_penalty: Annotated[float, _expected("frequency_penalty", ge=0, le=0)] | None = None
    presence_penalty: Annotated[float, _expected("presence_penalty", ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, float], _expected("logit_bias", max_length=0)] | None = None
    response_format: Annotated[ResponseFormat, _expected("response_format")] | None = None
    tools: Annotated[list[Any], _expected("tools", max_length=0)] | None = None
    visual_tokens: Annotated[int, _expected("visual_tokens", ge=1, le=1_048_576)] | None = None
    visual_prompt: Annotated[PromptName, _expected("visual_prompt")] | None = None
    evidence: Annotated[bool, _expected("evidence")] | None = None
    metadata: Any = Field(default=None, description="taken and not used, as the next five")
    prompt_cache_key: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    store: Any = None
    user: Any = None


class TopLogprob(BaseModel):
    """A token and the natural log of its probability; ``bytes`` are exact where ``token`` is half a character."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """A token of the answer, and the likeliest ones at its place."""

    top_logprobs: list[TopLogprob]


class Logprobs(BaseModel):
    """Log-probabilities of a choice."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatAnswer(BaseModel):
    """The message of a choice."""

    role: Literal["assistant"]
    content: str
    refusal: None = None


class Choice(BaseModel):
    """The one choice."""

    index: Literal[0]
    message: ChatAnswer
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"]


class ChatUsage(BaseModel):
    """OpenAI's counts, and what became of the pictures; ``prompt_tokens`` holds the visual ones."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    visual_tokens: int
    images: list[ImageUse]
    stages: Stages
    visual_prompt: PromptUse | None = Field(default=None, description="left out where there was none")
    route: Route | None = Field(default=None, description="left out where one engine answers everything")
    evidence: list[Evidence] | None = Field(default=None, description="one entry per picture, where it was asked for")


class ChatCompletion(BaseModel):
    """An answer in OpenAI's form; ``system_fingerprint`` begins with ``fp_`` and names the weights."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: ChatUsage


class OpenAIErrorDetail(BaseModel):
    """Why not, in OpenAI's form; ``param`` is the field that is to blame."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(BaseModel):
    """The shape of every refusal under OpenAI's paths."""

    error: OpenAIErrorDetail
