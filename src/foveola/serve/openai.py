"""OpenAI's chat completions ↔ exchange: a body becomes a Request, pieces become a completion or its chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from foveola.exchange import Invalid, Piece, Refusal, Request, Sampling, TokenLogprob, Turn
from foveola.serve.chat_schema import CHAT_EXPECTED, Chat, Message, Part
from foveola.serve.dialect import Told
from foveola.serve.refusals import openai_body_of
from foveola.serve.wire import encode, invalid_of, parse_json, picture_of_text, shown, usage_of

DONE = b"data: [DONE]\n\n"
_EXAMPLE = '{"model": "...", "messages": [{"role": "user", "content": "..."}]}'
_ROLES: dict[str, Any] = {"developer": "system"}


def chat_of(body: bytes | bytearray) -> Chat:
    """The body as it is meant. Raises ``BadRequest`` or ``Invalid`` naming the field."""
    document = parse_json(body, "body", _EXAMPLE)
    if not isinstance(document, dict):
        raise Invalid(f"The body is {shown(document)}; expected a JSON object with `model` and `messages`.")
    try:
        chat = Chat.model_validate(document)
    except ValidationError as error:
        raise invalid_of(error, CHAT_EXPECTED, tuple(Chat.model_fields), "the body") from None
    _check_together(chat)
    return chat


def _check_together(chat: Chat) -> None:
    """What pydantic does not see: fields that need each other."""
    if chat.messages[-1].role != "user":
        raise Invalid(
            f"The last message is the {chat.messages[-1].role}'s; expected the user's question at the end.",
            field=f"messages[{len(chat.messages) - 1}].role",
        )
    if chat.top_logprobs is not None and not chat.logprobs:
        raise Invalid("`top_logprobs` needs `logprobs` to be true; set it, or leave both out.", field="top_logprobs")
    if chat.stream_options is not None and not chat.stream:
        raise Invalid("`stream_options` needs `stream` to be true; set it, or leave both out.", field="stream_options")
    if None not in (chat.max_tokens, chat.max_completion_tokens) and chat.max_tokens != chat.max_completion_tokens:
        raise Invalid(
            "`max_tokens` and `max_completion_tokens` differ; send one of them.", field="max_completion_tokens"
        )


def request_of_chat(chat: Chat, request_id: str, max_image_bytes: int) -> Request:
    """The exchange's Request. Decodes the pictures' base64; raises ``Invalid``, ``BadImage`` or ``TooLarge``."""
    turns = tuple(_turn(message, f"messages[{index}]", max_image_bytes) for index, message in enumerate(chat.messages))
    if not turns[-1].text.strip() and not turns[-1].images:
        place = f"messages[{len(turns) - 1}].content"
        raise Invalid(f"`{place}` is empty; expected a question, a picture, or both.", field=place)
    named = chat.visual_prompt or ""
    return Request(request_id, turns, _sampling(chat), visual_tokens=chat.visual_tokens, visual_prompt=named)


def _sampling(chat: Chat) -> Sampling:
    stop = chat.stop if chat.stop is not None else ()
    given: dict[str, Any] = {
        "max_tokens": chat.max_completion_tokens or chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
        "top_k": chat.top_k,
        "seed": chat.seed,
        "logprobs": (chat.top_logprobs or 0) if chat.logprobs else None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return Sampling(**chosen, stop=(stop,) if isinstance(stop, str) else tuple(stop))


def _turn(message: Message, place: str, max_image_bytes: int) -> Turn:
    role = _ROLES.get(message.role, message.role)
    if isinstance(message.content, str):
        return Turn(role, message.content)
    images: list[bytes] = []
    parts: list[str | int] = []
    for index, part in enumerate(message.content):
        here = f"{place}.content[{index}]"
        if part.type == "text":
            parts.append(_text(part, here))
            continue
        if role != "user":
            raise Invalid(
                f"`{here}` is a picture in a message of the {role}; only the user shows pictures.", field=here
            )
        parts.append(len(images))
        images.append(picture_of_text(_address(part, here), max_image_bytes, f"{here}.image_url"))
    text = "".join(part for part in parts if isinstance(part, str))
    return Turn(role, text, tuple(images), tuple(part for part in parts if part != ""))


def _all_low(chat: Chat) -> bool:
    """Whether every picture is asked for in low detail."""
    parts = [part for message in chat.messages if not isinstance(message.content, str) for part in message.content]
    shown = [part.image_url for part in parts if part.image_url is not None]
    return bool(shown) and all(not isinstance(one, str) and one.detail == "low" for one in shown)


def _text(part: Part, place: str) -> str:
    if part.text is None or part.image_url is not None:
        raise Invalid(f"`{place}` is of type text; expected `text` in it, and nothing else.", field=place)
    return part.text


def _address(part: Part, place: str) -> str:
    if part.image_url is None or part.text is not None:
        raise Invalid(f"`{place}` is of type image_url; expected `image_url` in it, and nothing else.", field=place)
    return part.image_url if isinstance(part.image_url, str) else part.image_url.url


class ChatAnswer:
    """Tells one answer in OpenAI's form. ``model`` is the name that was asked for, ``created`` the present."""

    def __init__(self, chat: Chat, request: Request) -> None:
        self.request = request
        self.model = chat.model
        self.stream = bool(chat.stream)
        self.low_detail = chat.visual_tokens is None and _all_low(chat)
        self._evidence = bool(chat.evidence)
        self._usage = bool(chat.stream_options and chat.stream_options.include_usage)
        self._logprobs = bool(chat.logprobs)
        self._created = int(time.time())

    def whole(self, told: Told) -> dict[str, Any]:
        """The completion as one object."""
        message = {"role": "assistant", "content": told.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": self._told(told.logprobs), "finish_reason": told.finish}
        return {**self._head("chat.completion", told.model_hash), "choices": [choice], "usage": self._count(told)}

    def delta(self, piece: Piece, model_hash: str, *, first: bool) -> bytes:
        """The chunk of a piece, the first with the role; nothing for one that holds nothing."""
        if not (first or piece.text or piece.logprobs):
            return b""
        said = {"role": "assistant", "content": piece.text} if first else {"content": piece.text}
        return self._chunk(model_hash, said, self._told(piece.logprobs))

    def ending(self, told: Told) -> bytes:
        """The chunk with the reason of the end, the usage where it was asked for, and the mark of the end."""
        last = self._chunk(told.model_hash, {}, None, told.finish)
        if self._usage:
            document = {**self._head("chat.completion.chunk", told.model_hash), "choices": []}
            last += _data({**document, "usage": self._count(told)})
        return last + DONE

    def failure(self, refusal: Refusal) -> bytes:
        """What a stream ends with that cannot go on."""
        return _data(openai_body_of(refusal))

    def _head(self, kind: str, model_hash: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.request.id}",
            "object": kind,
            "created": self._created,
            "model": self.model,
            "system_fingerprint": f"fp_{model_hash[:12]}",
        }

    def _chunk(
        self, model_hash: str, delta: dict[str, str], logprobs: dict[str, Any] | None, finish: str | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        document = {**self._head("chat.completion.chunk", model_hash), "choices": [choice]}
        return _data(document | ({"usage": None} if self._usage else {}))

    def _count(self, told: Told) -> dict[str, Any]:
        return usage_of(told.usage, evidence=self._evidence)

    def _told(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        content = [
            {**_token(one.token, one.logprob), "top_logprobs": [_token(token, p) for token, p in one.top]}
            for one in logprobs
        ]
        return {"content": content, "refusal": None}


def _token(token: bytes, logprob: float) -> dict[str, Any]:
    return {"token": token.decode("utf-8", "replace"), "logprob": round(logprob, 6), "bytes": list(token)}


def _data(document: object) -> bytes:
    return b"data: %b\n\n" % encode(document)
