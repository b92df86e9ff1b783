"""From pictures at a site to an answer of the engine: a prompt that is trained here says there what it was taught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveola.artifact import Bundle
from foveola.artifact.prompt import ROWS, write_prompt
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Invalid, Request, Sampling, Turn, Unsupported
from foveola.learn.federate.node import Node
from foveola.learn.federate.options import FederationOptions
from foveola.learn.federate.rounds import Federation
from tests.engine.test_model import picture

torch = pytest.importorskip("torch", reason="the workshop is not installed")
pytestmark = pytest.mark.torch

from foveola.learn.federate.tuning import PromptTuning, Record, TuningOptions  # noqa: E402

QUESTION = "Which defect is this?"
WIDTH = 64


def records(answer: str, *seeds: int) -> list[Record]:
    return [Record(picture(112, 84, seed), QUESTION, answer) for seed in seeds]


@pytest.fixture(scope="module")
def model(random_bundle: Path) -> Any:
    from transformers import Qwen2VLForConditionalGeneration

    return Qwen2VLForConditionalGeneration.from_pretrained(random_bundle.parent / "checkpoint")


def test_two_sites_teach_the_engine_an_answer(random_bundle: Path, model: Any, tmp_path: Path) -> None:
    bundle = Bundle.open(random_bundle)
    options = TuningOptions(steps=10, rate=0.1, batch=2)
    agreed = FederationOptions(width=WIDTH, keep=0.5, clip=16.0, rule="mean", server="plain")
    sites = [PromptTuning(model, bundle, records("ok", *seeds), options) for seeds in ((1, 2), (3, 4))]
    nodes = [Node(number, site, agreed) for number, site in enumerate(sites, 1)]
    federation = Federation.create(agreed, members=[1, 2])
    before = sites[0].loss(federation.prompt)
    for _ in range(12):
        for node in nodes:
            node.receive(federation.messages_for(node.known))
            federation.accept(node.number, node.train())
        federation.close()
    after = sites[0].loss(federation.prompt)
    assert after < 0.2 < before
    write_prompt(tmp_path / "plant", federation.prompt, name="plant", base=bundle.model_hash)
    engine = Engine.open(bundle, EngineOptions(threads=1), prompts_dir=tmp_path)
    shown = (Turn("user", QUESTION, (picture(112, 84, 1),)),)
    taught = answer_once(engine, Request("r", shown, Sampling(max_tokens=6), visual_prompt="plant"))[0]
    plain = answer_once(engine, Request("r", shown, Sampling(max_tokens=6)))[0]
    engine.close(5)
    assert taught == "ok" != plain


def test_what_cannot_be_trained_is_refused(random_bundle: Path, selecting_bundle: Path, model: Any) -> None:
    with pytest.raises(Invalid, match="no records to train on"):
        PromptTuning(model, Bundle.open(random_bundle), [])
    with pytest.raises(Unsupported, match="keeps all their tokens"):
        PromptTuning(model, Bundle.open(selecting_bundle), records("ok", 1))
    with pytest.raises(Invalid, match="steps and batch are at least 1"):
        TuningOptions(steps=0)


def test_the_loss_is_of_the_answer_alone_and_sees_no_filling(random_bundle: Path, model: Any) -> None:
    bundle = Bundle.open(random_bundle)
    prompt = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    short, long = records("ok", 1), records("a much longer answer", 2)
    apart = [PromptTuning(model, bundle, one).loss(prompt) for one in (short, long)]
    together = PromptTuning(model, bundle, [*short, *long])
    counts = [int((lesson.targets >= 0).sum()) for lesson in together._lessons]
    assert counts[1] > counts[0]
    assert together.loss(prompt) == pytest.approx(np.average(apart, weights=counts), rel=1e-4)
