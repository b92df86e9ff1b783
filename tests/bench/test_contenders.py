"""Contenders in real processes, on a small random model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from foveola.bench import worker
from foveola.bench.contender import CannotTakePart, Setup
from foveola.bench.options import BenchOptions
from foveola.bench.remote import Remote
from foveola.bench.run import contenders
from foveola.bench.sample import STAGES, Item
from foveola.bench.server import Client, HttpServer, multipart
from foveola.bench.work import encoded, generated_items
from foveola.exchange import Refusal, Unavailable

pytestmark = [pytest.mark.process, pytest.mark.torch]
TOKENS = 6


@pytest.fixture(scope="module")
def small() -> list[Item]:
    """Pictures that are not resized: the test bundle and its checkpoint scale larger ones differently."""
    drawing = np.random.default_rng(5)
    return [
        Item(f"{index}", encoded(drawing.integers(0, 256, (84, 112, 3), np.uint8), "PNG"), f"Question {index}?")
        for index in range(4)
    ]


@pytest.fixture(scope="module")
def engine(random_bundle: Path) -> Iterator[Remote]:
    remote = Remote("foveola", "engine", Setup(random_bundle, 1, TOKENS))
    yield remote
    remote.close()


def test_the_engine_in_its_own_process(engine: Remote, small: list[Item]) -> None:
    block = engine.run(small, 1)
    assert len(block.samples) == 4
    for sample in block.samples:
        assert sample.text
        assert 0 < sample.first_s <= sample.latency_s
        assert 1 <= sample.tokens <= TOKENS
        assert set(sample.stages_s) == set(STAGES)
        assert sum(sample.stages_s.values()) <= sample.latency_s
    assert block.wall_s >= sum(sample.latency_s for sample in block.samples)
    assert engine.peak_memory() > 30 * 2**20
    several = engine.run(small, 2)
    assert [sample.text for sample in several.samples] == [sample.text for sample in block.samples]


def test_the_server_says_what_the_engine_says(engine: Remote, random_bundle: Path, small: list[Item]) -> None:
    server = HttpServer("foveola HTTP", Setup(random_bundle, 1, TOKENS))
    try:
        block = server.run(small, 2)
        assert [sample.text for sample in block.samples] == [s.text for s in engine.run(small, 1).samples]
        assert all(0 < sample.first_s <= sample.latency_s for sample in block.samples)
        assert server.peak_memory() > 30 * 2**20
        client = Client(server._port)
        assert client.ready()
        reply, latency_s = client.invoke(small[0], TOKENS)
        assert reply["text"] == block.samples[0].text
        assert reply["usage"]["stages"]["total_s"] <= latency_s
        with pytest.raises(Unavailable, match="The server refused with status 400: "):
            client.invoke(Item("broken", b"not a picture", "What?"), TOKENS)
        with pytest.raises(Unavailable, match="The server refused with status 4"):
            client.stream(Item("broken", b"not a picture", "What?"), TOKENS)
        client.close()
    finally:
        server.close()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(CannotTakePart, match="no directory"):
        HttpServer("foveola HTTP", Setup(tmp_path / "none", 1, TOKENS))


@pytest.mark.slow
def test_transformers_gives_the_same_answers(engine: Remote, random_bundle: Path, small: list[Item]) -> None:
    rival = Remote("transformers", "transformers", Setup(random_bundle.parent / "checkpoint", 1, TOKENS))
    try:
        ours, theirs = engine.run(small, 1), rival.run(small, 1)
        assert [sample.text for sample in theirs.samples] == [sample.text for sample in ours.samples]
        assert [sample.tokens for sample in theirs.samples] == [sample.tokens for sample in ours.samples]
        for sample in theirs.samples:
            assert min(sample.stages_s[stage] for stage in ("decode_image", "vision", "prefill")) > 0
            assert sum(sample.stages_s.values()) <= sample.latency_s
        batch = rival.run(small, 2)
        assert [sample.text for sample in batch.samples] == [sample.text for sample in ours.samples]
        assert batch.samples[0].latency_s == batch.samples[1].latency_s
    finally:
        rival.close()


def test_a_bundle_that_is_none_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="manifest.json is missing"):
        Remote("foveola", "engine", Setup(tmp_path, 1, TOKENS))


def test_a_contender_that_dies_is_named_with_its_last_words(random_bundle: Path, small: list[Item]) -> None:
    remote = Remote("foveola", "engine", Setup(random_bundle, 1, TOKENS))
    try:
        remote._process.kill()
        with pytest.raises(Unavailable, match="foveola ended in the middle of the benchmark: exit code -9"):
            remote.run(small, 1)
    finally:
        remote.close()


def test_a_rival_that_is_not_installed_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(worker.KINDS, "transformers", ("no_such_package_here", "Transformers", "workshop"))
    with pytest.raises(
        CannotTakePart, match="no_such_package_here is not installed; pip install 'foveola\\[workshop\\]'"
    ):
        worker.open_kind("transformers", Setup(tmp_path, 1, 1))


def test_a_rival_without_weights_is_a_line_and_not_an_error(random_bundle: Path) -> None:
    missing: list[str] = []
    options = BenchOptions(bundle=random_bundle, cores=1)
    with contenders(options, missing, lambda what, done, total: None) as taking_part:
        assert [one.name for one in taking_part] == ["foveola", "foveola HTTP"]
    assert missing == [
        "transformers is not measured: name the checkpoint that the bundle was compiled from with --checkpoint DIR."
    ]


def test_the_form_that_a_client_sends() -> None:
    (item,) = generated_items(1)
    body = multipart(item, 7)
    assert item.image in body
    assert b'"max_tokens": 7' in body
    assert body.endswith(b"--foveola-bench-part--\r\n")
