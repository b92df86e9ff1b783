"""Fewer visual tokens, asked for request by request: what is answered, what is told, and that nobody else matters."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from foveola.artifact import Bundle, write_bundle
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Invalid, Request
from tests.engine.test_model import asked, picture

pytestmark = pytest.mark.torch

ONE_THREAD = EngineOptions(threads=1)
FRESH = EngineOptions(threads=1, feature_cache_mib=0, prefix_cache_mib=0)


@pytest.fixture(scope="module")
def engine(selecting_bundle: Path) -> Iterator[Engine]:
    engine = Engine.open(selecting_bundle, ONE_THREAD)
    yield engine
    engine.close(5)


def few(keep: int | None, *, text: str = "Which defect is this?", seed: int = 0) -> Request:
    return replace(asked(text, images=(picture(112, 112, seed),)), visual_tokens=keep)


def test_all_tokens_give_the_answer_of_the_bundle_without_selection(engine: Engine, random_bundle: Path) -> None:
    plain = Engine.open(random_bundle, ONE_THREAD)
    wanted = answer_once(plain, few(None))[0]
    plain.close(5)
    for keep in (None, 16, 999):
        text, usage = answer_once(engine, few(keep))
        assert text == wanted
        assert usage.visual_tokens == 16
    assert usage.images[0].kept == 16


def test_the_usage_tells_the_tokens_before_and_after(engine: Engine) -> None:
    _, whole = answer_once(engine, few(None))
    _, usage = answer_once(engine, few(5))
    assert usage.prompt_tokens == whole.prompt_tokens - 11
    assert usage.visual_tokens == 5
    assert (usage.images[0].tokens, usage.images[0].kept) == (16, 5)
    (evidence,) = usage.evidence
    assert sum(weight > 0 for weight in evidence.weights) == 5
    assert 0 < evidence.mass < 1


async def test_the_count_is_that_of_the_answer(engine: Engine) -> None:
    counted = await engine.count(few(5))
    _, usage = answer_once(engine, few(5))
    assert (counted.prompt_tokens, counted.visual_tokens) == (usage.prompt_tokens, 5)


def test_what_was_computed_for_one_number_is_not_taken_for_another(engine: Engine, selecting_bundle: Path) -> None:
    fresh = Engine.open(selecting_bundle, FRESH)
    asked_for = [5, 9, None, 5, 12, 9]
    wanted = [answer_once(fresh, few(keep))[0] for keep in asked_for]
    fresh.close(5)
    assert [answer_once(engine, few(keep))[0] for keep in asked_for] == wanted
    answer_once(engine, few(15))
    again = few(15, text="Where is it?")
    assert answer_once(engine, again)[1].cached_tokens > 0  # the same picture with as many tokens is known


def test_an_answer_does_not_depend_on_who_else_is_served(selecting_bundle: Path) -> None:
    requests = [few(keep, seed=seed) for seed, keep in enumerate((4, None, 9, 6))]
    alone = Engine.open(selecting_bundle, FRESH)
    wanted = [answer_once(alone, request) for request in requests]
    alone.close(5)
    engine = Engine.open(selecting_bundle, replace(FRESH, slots=4))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda request: answer_once(engine, request), requests))
    engine.close(5)
    for (text, usage), (other, told) in zip(found, wanted, strict=True):
        assert text == other
        assert [w > 0 for w in usage.evidence[0].weights] == [w > 0 for w in told.evidence[0].weights]


def test_two_pictures_keep_as_many_each(engine: Engine) -> None:
    both = replace(asked(images=(picture(112, 112, 0), picture(112, 56, 1))), visual_tokens=3)
    _, usage = answer_once(engine, both)
    assert [image.kept for image in usage.images] == [3, 3]
    alone = answer_once(engine, few(3))[1].evidence[0]
    assert [w > 0 for w in usage.evidence[0].weights] == [w > 0 for w in alone.weights]


async def test_what_is_kept_fits_where_all_would_not(engine: Engine) -> None:
    one, many = [(await engine.count(asked("word " * words))).prompt_tokens for words in (1, 101)]
    words = (1024 - 8 - 70 - one) * 100 // (many - one)  # of the context, 70 tokens are left for eight pictures
    pictures = tuple(picture(112, 112, seed) for seed in range(8))
    request = asked("word " * words, images=pictures, max_tokens=8)
    shrunk = (await engine.count(request)).images
    assert all(image.used != (112, 112) for image in shrunk)
    _, usage = answer_once(engine, replace(request, visual_tokens=2))
    assert [(image.used, image.kept) for image in usage.images] == [((112, 112), 2)] * 8


def test_the_bundles_own_number_counts_where_a_request_has_none(selecting_bundle: Path, tmp_path: Path) -> None:
    source = Bundle.open(selecting_bundle)

    def copy(folder: Path) -> None:
        for name in source.files:
            data = source.read(name)
            if name == "model.json":
                data = data.replace(b'"tokens": null', b'"tokens": 7')
            (folder / name).write_bytes(data)

    bundle = write_bundle(tmp_path / "seven", name="seven", files=copy)
    engine = Engine.open(bundle, ONE_THREAD)
    assert answer_once(engine, few(None))[1].visual_tokens == 7
    assert answer_once(engine, few(9))[1].visual_tokens == 9
    engine.close(5)


def test_what_cannot_be_asked_for_is_told(engine: Engine, random_bundle: Path) -> None:
    with pytest.raises(Invalid, match="visual_tokens is 0; expected a whole number from 1"):
        answer_once(engine, few(0))
    plain = Engine.open(random_bundle, ONE_THREAD)
    with pytest.raises(Invalid, match="visual_tokens is 5, but this model keeps all tokens of a picture") as caught:
        answer_once(plain, few(5))
    plain.close(5)
    assert caught.value.field == "visual_tokens"
