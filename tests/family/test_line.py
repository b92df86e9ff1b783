"""The full line for every family: checkpoint, weights rounded to few bits, bundle, engine, answer.

The bundle's graphs were held against the model by the compilation itself (1e-4, pictures of mixed sizes); here the
answers are compared with transformers', token for token over 64 tokens, on the same rounded weights.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from foveola.artifact import Bundle, Checkpoint
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Invalid, OverBudget, Request, Sampling, Turn
from foveola.family import family_of
from foveola.lower.compile import compile_checkpoint, rules
from foveola.lower.options import CompileOptions
from foveola.lower.storage import apply, plan
from foveola.weights.loading import load
from tests.family.asking import answered, picture
from tests.family.making import MAKERS, checkpoint

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TOKENS = 64
OPTIONS = CompileOptions.of_precision("int4", accuracy_level=1, max_length=1024)
SIZES: list[list[tuple[int, int]]] = [[(120, 90)], [(40, 130), (200, 60), (64, 64)], []]


@pytest.fixture(scope="module", params=list(MAKERS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle, Any]:
    """Checkpoint, bundle, and transformers' model with the weights that the bundle holds."""
    folder = checkpoint(tmp_path_factory.mktemp(request.param) / "checkpoint", request.param)
    bundle = compile_checkpoint(folder, folder.parent / "bundle", OPTIONS)
    opened = Checkpoint.open(folder)
    family = family_of(opened.config)
    model = load(opened, family)
    blocks = family.tower_shape(opened.config).blocks if family.sees else None
    apply(model, plan(model, family, rules(family, OPTIONS), blocks))
    return folder, bundle, model


def _png(image: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def test_answers_are_those_of_transformers(made: tuple[Path, Bundle, Any]) -> None:
    folder, bundle, model = made
    sees = "vision" in bundle.model["graphs"]
    errors = next(finding for finding in bundle.lineage if finding.step == "lower.parity").after
    assert all(float(error) <= 1e-4 for name, error in errors.items() if "level_4" not in name)
    engine = Engine.open(bundle, EngineOptions(threads=1, slots=2))
    try:
        for sizes in SIZES if sees else [[]]:
            pictures = [picture(*size, seed) for seed, size in enumerate(sizes)]
            question = "Which defect is this? Where?"
            sampling = Sampling(max_tokens=TOKENS)
            asked = Request("r", (Turn("user", question, tuple(map(_png, pictures))),), sampling)
            text, usage = answer_once(engine, asked)
            wanted, length = answered(folder, model, pictures, question, TOKENS)
            assert usage.prompt_tokens == length
            assert text == wanted
            assert len(text) > 10
            assert len(usage.evidence) == len(pictures)
            assert all(len(one.weights) == one.grid[0] * one.grid[1] for one in usage.evidence)
        if sees:
            crowd = tuple(_png(picture(100, 80)) for _ in range(400))
            with pytest.raises(OverBudget, match="400 pictures need at least"):
                answer_once(engine, Request("r", (Turn("user", "What?", crowd),), Sampling(max_tokens=8)))
        else:
            with pytest.raises(Invalid, match="This model reads text only"):
                answer_once(engine, Request("r", (Turn("user", "What?", (_png(picture(8, 8)),)),), Sampling()))
    finally:
        engine.close(5)
