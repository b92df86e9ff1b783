"""Readers of what others wrote get anything at all, and raise refusals only. Bounded and repeatable."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from foveola.artifact import Bundle
from foveola.artifact.safetensors import read_header
from foveola.exchange import Damaged, Refusal
from foveola.guard.words import parse_words
from foveola.intake import Limits, decode
from foveola.serve.body import read_form
from foveola.serve.options import ServeOptions
from foveola.serve.wire import parse_json, picture_of_text, question_of_json
from tests.artifact.making import make_bundle, safetensors
from tests.guard.lists import compiled
from tests.hostile.asking import UNSAFE, picture

FEW = settings(
    deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
GOOD_FORM = (
    b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n{"text": "a"}\r\n'
    b'--B\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n\x89PNG\r\n--B--\r\n'
)


def safe(refusal: Refusal) -> None:
    assert len(refusal.message) > 10 and not UNSAFE.search(refusal.message), refusal.message


def mutations(good: bytes) -> st.SearchStrategy[bytes]:
    """``good`` with a few bytes changed, cut out, put in or doubled."""

    def mutated(seed: int) -> bytes:
        rng, data = random.Random(seed), bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) or 1)
            match rng.randrange(4):
                case 0:
                    data[at : at + 1] = bytes([rng.randrange(256)])
                case 1:
                    del data[at : at + rng.randrange(1, 40)]
                case 2:
                    data[at:at] = rng.randbytes(rng.randrange(1, 40))
                case _:
                    data[at:at] = data[at : at + rng.randrange(1, 40)]
        return bytes(data)

    return st.integers(0, 2**32).map(mutated)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_pictures(format: str) -> None:
    good = picture((24, 18), format)

    @FEW
    @given(mutations(good))
    def fuzz(data: bytes) -> None:
        try:
            assert decode(data, Limits(max_pixels=100_000)).rgb.shape[2] == 3
        except Refusal as refusal:
            safe(refusal)

    fuzz()


@FEW
@given(mutations(GOOD_FORM), st.integers(1, 60))
@example(GOOD_FORM, 1)
def test_forms(body: bytes, step: int) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), step):
            yield body[at : at + step]

    try:
        asyncio.run(read_form(chunks(), "B", ServeOptions()))
    except Refusal as refusal:
        safe(refusal)


@FEW
@given(st.text(max_size=60) | st.from_regex(r"(data:[a-z/]{0,9}(;base64)?,)?[A-Za-z0-9+/=\n]{0,40}", fullmatch=True))
def test_base64(text: str) -> None:
    try:
        assert isinstance(picture_of_text(text, 1000), bytes)
    except Refusal as refusal:
        safe(refusal)


@FEW
@given(st.binary(max_size=80) | mutations(b'{"image": "aGVsbG8=", "prompt": {"text": "a", "stop": ["x"]}}'))
def test_json(body: bytes) -> None:
    for read in (lambda: parse_json(body, "body"), lambda: question_of_json(body, 1000)):
        try:
            read()
        except Refusal as refusal:
            safe(refusal)


def test_word_lists() -> None:
    good = compiled(["abc", "炸弹"])

    @FEW
    @given(mutations(good) | mutations(good[:200]) | st.binary(max_size=64))
    def fuzz(data: bytes) -> None:
        try:
            parse_words(data, "a.words")
        except Damaged as refusal:
            safe(refusal)

    fuzz()


@pytest.mark.parametrize("name", ["manifest.json", "model.json"])
def test_bundles(tmp_path: Path, name: str) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    file = bundle.path / name

    @FEW
    @given(mutations(file.read_bytes()))
    def fuzz(data: bytes) -> None:
        file.write_bytes(data)
        try:
            Bundle.open(bundle.path)
        except Damaged as refusal:
            safe(refusal)

    fuzz()


def test_safetensors_headers(tmp_path: Path) -> None:
    good = safetensors({"a": ("F32", [2, 2], bytes(16)), "b": ("I8", [3], bytes(3))})
    file = tmp_path / "a.safetensors"

    @FEW
    @given(mutations(good) | st.binary(max_size=40).map(lambda tail: struct.pack("<Q", 2**62) + tail))
    def fuzz(data: bytes) -> None:
        file.write_bytes(data)
        try:
            read_header(tmp_path, file.name)
        except Damaged as refusal:
            safe(refusal)

    fuzz()
