"""Reading a request's body within its limits: nothing is read before the headers allow it, nothing after a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from multipart import MultipartError, ParserLimitReached, PushMultipartParser, parse_options_header
from starlette.requests import Request as HttpRequest

from foveola.exchange import BadImage, BadRequest, Invalid, TooLarge, Unsupported
from foveola.serve.options import ServeOptions
from foveola.serve.refusals import TooSlow
from foveola.serve.wire import Question, parse_json, question_of_json

FORM, JSON = "multipart/form-data", "application/json"
T = TypeVar("T")
MAX_PART_HEADERS = 8
MAX_PART_HEADER_BYTES = 2048
OFF_LOOP_BYTES = 1024 * 1024  # decoding more than this on the event loop (3 ms) would be felt by the others


async def read_question(http: HttpRequest, options: ServeOptions) -> Question:
    """The question in the body of ``http``. Raises only refusals (and ``ClientDisconnect``)."""
    kind, parameters = content_type(http.headers, (FORM, JSON))
    check_length(http.headers, options.max_body_bytes)
    async with in_time(options):
        if kind == FORM:
            return await read_form(http.stream(), parameters.get("boundary", ""), options)
        body = await read_all(http.stream(), options.max_body_bytes)
    return await beside_the_loop(question_of_json, body, options.max_image_bytes)


async def read_json(http: HttpRequest, options: ServeOptions) -> bytearray:
    """The body of ``http`` where only JSON is taken, not parsed yet. Raises as ``read_question``."""
    content_type(http.headers, (JSON,))
    check_length(http.headers, options.max_body_bytes)
    async with in_time(options):
        return await read_all(http.stream(), options.max_body_bytes)


@asynccontextmanager
async def in_time(options: ServeOptions) -> AsyncIterator[None]:
    """What is read inside has to arrive within the time for it. Raises ``TooSlow``."""
    try:
        async with asyncio.timeout(options.read_timeout_s):
            yield
    except TimeoutError:
        raise TooSlow(
            f"The body did not arrive within {options.read_timeout_s:g} s; send it faster or make it smaller."
        ) from None


async def beside_the_loop(decode: Callable[[bytearray, int], T], body: bytearray, max_image_bytes: int) -> T:
    """Decode a body: small ones here, large ones in a thread."""
    if len(body) > OFF_LOOP_BYTES:
        return await asyncio.to_thread(decode, body, max_image_bytes)
    return decode(body, max_image_bytes)


def content_type(headers: Mapping[str, str], accepted: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The body's type, one of ``accepted``, and its parameters. Raises ``Unsupported``."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Unsupported("The body has a Content-Encoding; send it as it is.")
    given = headers.get("content-type")
    if given is None:
        raise Unsupported(f"There is no Content-Type; expected {' or '.join(accepted)}.")
    kind, parameters = parse_options_header(given)
    if kind not in accepted:
        raise Unsupported(f"The Content-Type is {_named(kind)}, which is not taken; expected {' or '.join(accepted)}.")
    return kind, parameters


def _named(kind: str) -> str:
    return kind if kind.isascii() and kind.isprintable() and 0 < len(kind) <= 60 else "no media type"


def check_length(headers: Mapping[str, str], limit: int) -> None:
    """Refuse a body that says itself that it is too long. Raises ``TooLarge``."""
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise _too_large(limit)


def announced_bytes(headers: Mapping[str, str], options: ServeOptions) -> int:
    """How many bytes the body may turn out to have: what Content-Length says, else the most that is taken."""
    length = headers.get("content-length", "")
    known = length.isascii() and length.isdigit()
    return min(int(length[:20]), options.max_body_bytes) if known else options.max_body_bytes


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than the {limit} bytes that are taken; send a smaller picture.")


async def read_all(chunks: AsyncIterator[bytes], limit: int) -> bytearray:
    """The whole body. Raises ``TooLarge`` as soon as it is longer than ``limit`` bytes."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return body


async def read_form(chunks: AsyncIterator[bytes], boundary: str, options: ServeOptions) -> Question:
    """The parts ``image`` and ``prompt`` of a multipart body, each at most once, nothing else."""
    parts: dict[str, bytearray] = {}
    largest = max(options.max_image_bytes, options.max_prompt_bytes)
    async for name, data in form_parts(chunks, boundary, ("image", "prompt"), options.max_body_bytes, largest):
        if data is None:
            parts[name] = bytearray()
        else:
            _append(parts[name], data, name, options)
    return _question(parts)


async def form_parts(
    chunks: AsyncIterator[bytes], boundary: str, names: tuple[str, ...], max_bytes: int, max_part_bytes: int
) -> AsyncIterator[tuple[str, bytes | bytearray | None]]:
    """The parts of a multipart body as they come: a part's name with None when it begins, then with its data.

    Only parts called ``names`` may come, each once. Raises ``BadRequest``, ``Invalid`` or ``TooLarge``.
    """
    if not boundary or len(boundary) > 70:
        raise BadRequest("The Content-Type multipart/form-data needs a boundary of 1 to 70 characters; name one.")
    seen: set[str] = set()
    name, received = "", 0
    try:
        parser = _parser(boundary, len(names), max_part_bytes)
        async for chunk in chunks:
            received += len(chunk)
            if received > max_bytes:
                raise _too_large(max_bytes)
            if not chunk:
                continue
            for event in parser.parse(chunk):
                if event is None:
                    name = ""
                elif isinstance(event, bytes | bytearray):
                    yield name, event
                else:
                    name = _admitted(event.name, names, seen)
                    seen.add(name)
                    yield name, None
        if not received:
            raise BadRequest(f"The body is empty; expected a form with the parts {_listed(names)}.")
        parser.close()
    except ParserLimitReached:
        raise TooLarge(
            f"The form exceeds a limit: at most {len(names)} parts, {MAX_PART_HEADERS} headers of "
            f"{MAX_PART_HEADER_BYTES} bytes each per part, {max_part_bytes} bytes per part."
        ) from None
    except MultipartError:
        raise BadRequest(
            "The body is not well-formed multipart/form-data (a boundary, a part's header or the end is missing or "
            "damaged); let an HTTP library write it."
        ) from None


def _parser(boundary: str, parts: int, max_part_bytes: int) -> PushMultipartParser:
    return PushMultipartParser(
        boundary,
        max_header_size=MAX_PART_HEADER_BYTES,
        max_header_count=MAX_PART_HEADERS,
        max_segment_size=max_part_bytes,
        max_segment_count=parts + 1,  # one too many is still named in the refusal
    )


def _admitted(name: str, names: tuple[str, ...], seen: set[str]) -> str:
    """The part's name if a part of that name may come now. Raises ``Invalid``."""
    if not name:
        raise Invalid(f"A part has no name; expected the parts {_listed(names)}.")
    shown = name[:40] if name.isprintable() else "a part"
    if name not in names:
        raise Invalid(f"`{shown}` is not a part of the form; there are {_listed(names)}.", field=shown)
    if name in seen:
        raise Invalid(f"The part `{name}` came twice; send it once.", field=name)
    return name


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(f'`{one}`' for one in names[:-1])} and `{names[-1]}`"


def _append(part: bytearray, data: bytes | bytearray, name: str, options: ServeOptions) -> None:
    limit = options.max_image_bytes if name == "image" else options.max_prompt_bytes
    if len(part) + len(data) > limit:
        raise TooLarge(f"The part `{name}` is larger than the {limit} bytes that are taken; send less.", field=name)
    part += data


def _question(parts: Mapping[str, bytearray]) -> Question:
    if "prompt" not in parts:
        raise BadRequest('The part `prompt` is missing; add one with JSON such as {"text": "..."}.', field="prompt")
    image = parts.get("image")
    if image is not None and not image:
        raise BadImage("The part `image` is empty; send a picture, or leave the part out.", field="image")
    return Question(parse_json(parts["prompt"], "prompt"), None if image is None else bytes(image))
