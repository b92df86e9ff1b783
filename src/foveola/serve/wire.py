"""HTTP ↔ exchange: bodies become a Request, pieces become a reply. Pure functions; reading is in ``body``."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from foveola.exchange import BadImage, BadRequest, Invalid, Piece, Request, Sampling, TooLarge, Turn, Usage
from foveola.serve.schema import EXPECTED, Prompt

_DATA_URL = re.compile(r"data:(?P<type>[^,;]{0,100})(?P<parameters>(?:;[^,;]{0,100}){0,4}),", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_BLANKS = (b"\n", b"\r", b" ", b"\t")  # tools that write base64 break its lines
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXAMPLE = '{"text": "What defect is this?"}'
_BODY_EXAMPLE = f'{{"image": "...", "prompt": {_EXAMPLE}}}'


@dataclass(frozen=True, slots=True)
class Question:
    """A request body, in either form, taken apart: the prompt as decoded JSON, the picture as a file's bytes."""

    prompt: object
    image: bytes | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the exchange takes it; ``evidence``: the reply shall tell where the model looked."""

    request: Request
    evidence: bool = False


def parse_json(body: bytes | bytearray, what: str, example: str = _EXAMPLE) -> object:
    """Decode JSON strictly: UTF-8, no duplicate names, no halves of surrogate pairs in names, bounded nesting.

    ``what`` names the thing in messages, and ``example`` is what could have come instead.

    NaN and Infinity are let through: they are refused where the field is known. Raises ``BadRequest`` or ``Invalid``.
    """
    if not body.strip():
        raise BadRequest(f"The {what} is empty; expected JSON such as {example}.", field=_field(what))
    try:
        return json.loads(str(body, "utf-8-sig"), object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise BadRequest(f"The {what} is not UTF-8; send JSON in UTF-8.", field=_field(what)) from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The {what} is not JSON ({_complaint(error)}); expected JSON such as {example}.",
            field=_field(what),
        ) from None
    except RecursionError:
        raise BadRequest(f"The {what} is nested too deeply; send it flat.", field=_field(what)) from None
    except ValueError:  # Python refuses to read whole numbers of thousands of digits
        raise BadRequest(
            f"The {what} has a number of thousands of digits; send a sensible one.", field=_field(what)
        ) from None


def _complaint(error: json.JSONDecodeError) -> str:
    return f"{error.msg.lower().removesuffix(' at')} at character {error.pos}"


def _field(what: str) -> str | None:
    return "prompt" if what == "prompt" else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"`{_cut(twice)}` is given twice in one object; give it once.", field=_cut(twice))
    for name in table:
        if not name.isascii() and _SURROGATE.search(name):
            raise Invalid(
                f"The name `{_cut(name)}` holds half of a surrogate pair; send whole characters.", field=_cut(name)
            )
    return table


def question_of_json(body: bytes | bytearray, max_image_bytes: int) -> Question:
    """The question in an ``application/json`` body: ``{"image"?: base64 or data URL, "prompt": object or string}``.

    Raises ``BadRequest``, ``Invalid``, ``BadImage`` or ``TooLarge``.
    """
    document = parse_json(body, "body", _BODY_EXAMPLE)
    if not isinstance(document, dict):
        raise BadRequest(f"The body is {shown(document)}; expected a JSON object such as {_BODY_EXAMPLE}.")
    for name in document:
        if name not in ("image", "prompt"):
            raise Invalid(
                f"`{_cut(name)}` is not a field of the body; there are `image` and `prompt` "
                "(sampling goes into `prompt`, streaming is asked for by ?stream=1).",
                field=_cut(name),
            )
    if "prompt" not in document:
        raise BadRequest(f"`prompt` is missing; expected {EXPECTED['prompt']}.", field="prompt")
    image = document.get("image")
    if image is None:
        return Question(document["prompt"], None)
    if not isinstance(image, str):
        raise Invalid(f"`image` is {shown(image)}; expected {EXPECTED['image']}.", field="image")
    return Question(document["prompt"], picture_of_text(image, max_image_bytes))


def picture_of_text(text: str, max_image_bytes: int, field: str = "image") -> bytes:
    """The bytes of a picture that came as base64 (line breaks allowed) or as a base64 data URL, in ``field``.

    Raises ``BadImage`` where it is neither, ``TooLarge`` above ``max_image_bytes``.
    """
    if match := _DATA_URL.match(text):
        if not match["parameters"].lower().endswith(";base64"):
            raise BadImage(f"`{field}` is a data URL without `;base64`; send data:image/png;base64,....", field=field)
        text = text[match.end() :]
    elif _ADDRESS.match(text):
        raise BadImage(
            f"`{field}` is an address, and this server fetches nothing; "
            "send the picture itself in base64 or as a file.",
            field=field,
        )
    try:
        packed = text.encode("ascii")
        if any(blank in packed for blank in _BLANKS):
            packed = packed.translate(None, b"".join(_BLANKS))
        picture = binascii.a2b_base64(packed, strict_mode=True)
    except (UnicodeEncodeError, binascii.Error):
        raise BadImage(f"`{field}` is not valid base64; expected {EXPECTED['image']}.", field=field) from None
    if not picture:
        raise BadImage(f"`{field}` is empty; send a picture, or leave the field out.", field=field)
    if len(picture) > max_image_bytes:
        raise TooLarge(
            f"The picture has {len(picture)} bytes; at most {max_image_bytes} are taken. Send a smaller one.",
            field=field,
        )
    return picture


def request_of(question: Question, request_id: str) -> Request:
    """The exchange's Request for a question. Raises ``Invalid`` naming the field that is wrong."""
    return asked_of(question, request_id).request


def asked_of(question: Question, request_id: str) -> Asked:
    """The Request for a question, and how its answer is to be told. Raises as ``request_of``."""
    prompt = question.prompt
    if isinstance(prompt, str):
        prompt = {"text": prompt}
    if not isinstance(prompt, dict):
        raise Invalid(f"`prompt` is {shown(prompt)}; expected {EXPECTED['prompt']}.", field="prompt")
    try:
        checked = Prompt.model_validate(prompt)
    except ValidationError as error:
        raise invalid_of(error, EXPECTED, tuple(Prompt.model_fields), "`prompt`") from None
    images = () if question.image is None else (question.image,)
    turns = (Turn("user", checked.text, images),)
    named = checked.visual_prompt or ""
    request = Request(request_id, turns, _sampling(checked), visual_tokens=checked.visual_tokens, visual_prompt=named)
    return Asked(request, bool(checked.evidence))


def _stops(prompt: Prompt) -> tuple[str, ...]:
    if prompt.stop is None:
        return ()
    return (prompt.stop,) if isinstance(prompt.stop, str) else tuple(prompt.stop)


def _sampling(prompt: Prompt) -> Sampling:
    plain = ("max_tokens", "temperature", "top_p", "top_k", "seed")
    given = {name: value for name in plain if (value := getattr(prompt, name)) is not None}
    return Sampling(**given, stop=_stops(prompt))


def invalid_of(error: ValidationError, expected: Mapping[str, str], known: Sequence[str], where: str) -> Invalid:
    """A complaint in our own words: what came, what was expected.

    ``expected`` has words for each field, by its last name, or by its last two where one does not tell it apart;
    ``known`` are the fields of ``where``. Of several complaints the deepest is told, since it belongs to the branch of
    a union that was meant.
    """
    told = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
    steps = [step for step in told["loc"][:-1] if isinstance(step, int) or step in expected]
    last = told["loc"][-1]
    if told["type"] in ("missing", "extra_forbidden") or last in expected:
        steps.append(last)
    element = told["type"] == "model_type" and isinstance(last, int)
    if element:
        steps.append(last)
    while not element and steps and isinstance(steps[-1], int):  # an element of a plain list is told as the list's
        steps.pop()
    field = _cut("".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip("."), 80)
    words = "an object" if element else _words([step for step in steps if isinstance(step, str)], expected)
    if told["type"] == "missing":
        return Invalid(f"`{field}` is missing from {where}; expected {words}.", field=field)
    if told["type"] == "extra_forbidden":
        listed = f"; there are {', '.join(f'`{one}`' for one in known)}" if len(steps) == 1 else ""
        return Invalid(f"`{field}` is not a field of {where}{listed}.", field=field)
    if told["type"] == "string_unicode":
        return Invalid(f"`{field}` holds half of a surrogate pair; send whole characters.", field=field)
    return Invalid(f"`{field}` is {shown(told['input'])}; expected {words}.", field=field)


def _words(names: Sequence[str], expected: Mapping[str, str]) -> str:
    """What is expected of the field that these names lead to."""
    told = (expected.get(name) for name in (".".join(names[-2:]), *reversed(names)))
    return next((words for words in told if words is not None), "another value")


def shown(value: object) -> str:
    """What came, in a few words that are safe to send back."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str):
        length = "1 character" if len(value) == 1 else f"{len(value)} characters"
        return f"{length} of text, {json.dumps(_cut(value), ensure_ascii=False)}" if value else "empty text"
    return _cut(str(value))


def _cut(text: str, limit: int = 40) -> str:
    clean = "".join(character if character.isprintable() else "·" for character in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "…"


def usage_of(usage: Usage, *, evidence: bool = False) -> dict[str, Any]:
    """Usage as JSON; the evidence only where it was asked for."""
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "visual_tokens": usage.visual_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "images": [asdict(image) for image in usage.images],
        "stages": {name: round(seconds, 6) for name, seconds in asdict(usage.stages).items()},
    }
    if usage.visual_prompt is not None:
        told["visual_prompt"] = asdict(usage.visual_prompt)
    if usage.route is not None:
        told["route"] = asdict(usage.route)
    if evidence:
        told["evidence"] = [
            {
                "grid": list(one.grid),
                "mass": round(one.mass, 6),
                "weights": [float(f"{weight:.4g}") for weight in one.weights],
            }
            for one in usage.evidence
        ]
    return told


def reply_of(
    request_id: str,
    text: str,
    last: Piece,
    usage: Usage,
    *,
    latency_s: float,
    model: Mapping[str, str],
    evidence: bool = False,
) -> dict[str, Any]:
    """The reply: ``last`` is the piece that has ``finish``; ``model`` has the names ``model`` and ``model_hash``."""
    return {
        "id": request_id,
        "text": text,
        "finish_reason": last.finish,
        "latency_ms": round(latency_s * 1000, 3),
        **model,
        "usage": usage_of(usage, evidence=evidence),
    }


def encode(document: object) -> bytes:
    """JSON in UTF-8, without escapes for what is readable, without spaces.

    Half a surrogate pair, such as in a name that is told back, becomes its escape, which is JSON as well.
    """
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def event(name: str, document: object) -> bytes:
    """One server-sent event. JSON has no raw line breaks, so the data is one line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(document))
