from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.exchange import BadImage, BadRequest, Invalid, Refusal, TooLarge
from foveola.serve.body import read_form
from foveola.serve.options import ServeOptions
from foveola.serve.wire import Question

OPTIONS = ServeOptions(max_image_bytes=2000, max_prompt_bytes=300)
PICTURE = bytes(range(256)) * 4 + b"\r\n--edge\r\n--"


def part(name: str, data: bytes, more: str = "") -> bytes:
    return f'--cut\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + data + b"\r\n"


PROMPT = part("prompt", b'{"text": "Which?"}')
IMAGE = part("image", PICTURE, '; filename="a.png"\r\nContent-Type: image/png')
END = b"--cut--\r\n"


def read(body: Iterable[bytes] | bytes, boundary: str = "cut", options: ServeOptions = OPTIONS) -> Question:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in [body] if isinstance(body, bytes) else body:
            yield chunk

    return asyncio.run(read_form(stream(), boundary, options))


def test_both_parts_in_any_order() -> None:
    expected = Question({"text": "Which?"}, PICTURE)
    assert read(IMAGE + PROMPT + END) == expected
    assert read(PROMPT + IMAGE + END) == expected
    assert read(PROMPT + END) == Question({"text": "Which?"}, None)


def test_a_prompt_part_may_be_a_json_string_but_not_plain_text() -> None:
    assert read(part("prompt", b'"Which?"') + END).prompt == "Which?"
    with pytest.raises(BadRequest, match='The prompt is not JSON .* expected JSON such as {"text"'):
        read(part("prompt", b"Which?") + END)


@given(st.lists(st.integers(0, len(IMAGE + PROMPT + END)), max_size=12))
def test_the_same_for_every_chunking(cuts: list[int]) -> None:
    body = IMAGE + PROMPT + END
    edges = [0, *sorted(cuts), len(body)]
    assert read(body[a:b] for a, b in pairwise(edges)) == Question({"text": "Which?"}, PICTURE)


def test_chunks_of_one_byte() -> None:
    body = IMAGE + PROMPT + END
    assert read(bytes([byte]) for byte in body).image == PICTURE


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"", BadRequest, "The body is empty; expected a form with the parts `image` and `prompt`"),
        (b"nothing like a form", BadRequest, "not well-formed"),
        (END, BadRequest, "`prompt` is missing"),
        (IMAGE + END, BadRequest, "`prompt` is missing"),
        (IMAGE + PROMPT, BadRequest, "not well-formed"),
        (PROMPT + END.replace(b"cut", b"cot"), BadRequest, "not well-formed"),
        (b"--cut\r\n\r\nno header\r\n" + END, BadRequest, "not well-formed"),
        (
            b"--cut\r\nContent-Disposition: form-data\r\n\r\nno name\r\n" + END,
            Invalid,
            "A part has no name; expected the parts",
        ),
        (b"--cut\r\nbroken\r\n\r\nx\r\n" + END, BadRequest, "not well-formed"),
        (b"--cut\nContent-Disposition: form-data\n\nx\n" + END, BadRequest, "not well-formed"),
        (PROMPT + part("image", b"") + END, BadImage, "`image` is empty"),
        (part("prompt", b"") + END, BadRequest, "prompt is empty"),
        (PROMPT + PROMPT + END, Invalid, "`prompt` came twice"),
        (IMAGE + PROMPT + IMAGE + END, Invalid, "`image` came twice"),
        (part("picture", b"x") + PROMPT + END, Invalid, "`picture` is not a part"),
        (IMAGE + PROMPT + part("x" * 99, b"x") + END, Invalid, "`x{40}` is not a part"),
        (part("prompt", b"x" * 301) + END, TooLarge, "`prompt` is larger than the 300 bytes"),
        (part("image", b"x" * 2001) + PROMPT + END, TooLarge, "at most 2 parts"),
        (part("prompt", b"x", "\r\nX-Long: " + "y" * 3000) + END, TooLarge, "at most 2 parts"),
        (part("prompt", b"x", "\r\nA: b" * 9) + END, TooLarge, "at most 2 parts"),
        (b"x" * 40_000, TooLarge, "larger than the 19684 bytes"),
    ],
)
def test_a_form_that_breaks_a_rule_is_refused(body: bytes, kind: type[Refusal], told: str) -> None:
    with pytest.raises(kind, match=told):
        read(body)


@pytest.mark.parametrize("boundary", ["", "x" * 71, "a\nb"])
def test_a_boundary_that_is_none_is_refused(boundary: str) -> None:
    with pytest.raises(BadRequest):
        read(PROMPT + END, boundary)


def test_a_flood_of_parts_ends_at_the_first_that_does_not_belong() -> None:
    seen = 0

    def flood() -> Iterable[bytes]:
        nonlocal seen
        for number in range(100_000):
            seen += 1
            yield part(f"p{number}", b"")

    with pytest.raises(Invalid, match="`p0` is not a part"):
        read(flood())
    assert seen == 1


def test_an_endless_body_ends_at_the_limit() -> None:
    seen = 0

    def endless() -> Iterable[bytes]:
        nonlocal seen
        while True:
            seen += 1000
            yield b"y" * 1000

    with pytest.raises(TooLarge):
        read(endless())
    assert seen <= OPTIONS.max_body_bytes + 1000


@given(st.binary(max_size=400))
def test_noise_is_refused_and_nothing_else(noise: bytes) -> None:
    for body in (noise, PROMPT + noise, b"--cut\r\n" + noise, IMAGE + noise + END):
        try:
            read(body)
        except Refusal as refusal:
            assert refusal.status in (400, 413, 422)
