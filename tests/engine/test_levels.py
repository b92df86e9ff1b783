"""One graph file at two accuracy levels: what is changed in it, and what the engine makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.artifact import Bundle
from foveola.engine.engine import Engine
from foveola.engine.features import Chunk
from foveola.engine.levels import at_level
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.engine.patch_file import read_state_dict
from foveola.engine.runner import OrtRunner
from foveola.engine.sessions import PREFILL, prefill_level
from foveola.exchange import Damaged
from tests.engine.test_model import asked, picture

pytestmark = pytest.mark.torch

ONE, TWO = EngineOptions(threads=1, two_layouts=False), EngineOptions(threads=1)
QUESTION = asked("Which defect is it?", images=(picture(112, 60, 1),))


@pytest.fixture(scope="module")
def narrow(random_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of ``random_bundle`` with a decoder in 4 bits, planned: prompts at level 1."""
    from foveola.artifact import Finding
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions
    from foveola.lower.plan_runs import with_plan

    folder = tmp_path_factory.mktemp("narrow")
    options = CompileOptions.of_precision("int4s", image_px=(112, 112), max_length=1024)  # no zero points: patched, too
    bundle = compile_checkpoint(random_bundle.parent / "checkpoint", folder / "plain", options)
    plan = {"phases": {"prefill_level": 1, "decode_level": 4, "extra_mib": 0.1}}
    return with_plan(bundle, folder / "planned", plan, Finding("lower.plan", "x"), replace=False).path


@pytest.fixture
def engine(narrow: Path) -> Iterator[Engine]:
    engine = Engine.open(narrow, TWO)
    yield engine
    engine.close(5)


def prompt(runner: OrtRunner, begin: int = 0, end: int = 20) -> Any:
    ids = np.random.default_rng(0).integers(0, 900, 20)
    positions = np.tile(np.arange(20), (3, 1))
    return runner.prefill(0, Chunk(ids[begin:end], positions[:, begin:end], begin, ids[:0], None))[0].copy()


def test_only_the_levels_change(narrow: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the workshop is not installed")
    before = (narrow / "decoder.onnx").read_bytes()
    after = at_level(before, "decoder.onnx", 1)
    old, new = onnx.load_from_string(before), onnx.load_from_string(after)
    levels = [a for n in new.graph.node if n.op_type == "MatMulNBits" for a in n.attribute if a.name.startswith("acc")]
    assert {level.i for level in levels} == {1}
    assert len(levels) == sum(one != other for one, other in zip(before, after, strict=True)) > 0
    for level in levels:
        level.i = 4
    assert new == old


def test_a_graph_without_such_products_and_no_graph_at_all(random_bundle: Path, narrow: Path) -> None:
    with pytest.raises(Damaged, match=r"embed.onnx has no product whose accuracy level could be 1; measure the plan"):
        at_level((random_bundle / "embed.onnx").read_bytes(), "embed.onnx", 1)
    with pytest.raises(Damaged, match=r"x.onnx cannot be read as an ONNX graph; compile the bundle anew"):
        at_level((narrow / "decoder.onnx").read_bytes()[:-3], "x.onnx", 1)


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Damaged, match=r"broken\.onnx"):
        at_level(data, "broken.onnx", 1)


def test_prompts_are_read_as_in_fp32_and_tokens_drawn_as_before(narrow: Path) -> None:
    bundle = Bundle.open(narrow)
    one, two = (OrtRunner(bundle, options) for options in (ONE, TWO))
    assert PREFILL not in one.sessions.graphs
    whole = prompt(two)
    np.testing.assert_allclose(whole, prompt(one), atol=0.25 * float(np.abs(whole).max()))
    assert float(np.abs(whole - prompt(one)).max()) > 0  # level 4 rounds, level 1 does not
    prompt(two, 0, 7)
    np.testing.assert_allclose(prompt(two, 7, 20), whole, atol=1e-4)  # in pieces as in one, also a short last one
    one.write(0, two.read(0, 20), 20)
    drawn = [runner.decode([5], [20], [20])[0].copy() for runner in (one, two)]
    np.testing.assert_array_equal(*drawn)  # the same session over the same keys and values
    np.testing.assert_allclose(two.verify(0, [5, 6], 20, 20)[0], drawn[1], atol=1e-4)


def test_a_patch_and_its_rollback_reach_both_layouts(engine: Engine, narrow: Path, tmp_path: Path) -> None:
    from tests.checkpoints import random_checkpoint

    def runner() -> OrtRunner:
        found = engine._scheduler._lanes[-1].runner
        assert isinstance(found, OrtRunner)
        return found

    text = answer_once(engine, QUESTION)[0]
    before = runner().sessions.graphs
    weights = read_state_dict(random_checkpoint(tmp_path / "other", seed=5) / "model.safetensors")
    engine.replace_submodule("", weights, strict=False)
    after = runner().sessions.graphs
    assert after[PREFILL] is not before[PREFILL]
    assert after["decoder"] is not before["decoder"]
    assert answer_once(engine, QUESTION)[0] != text
    old = prompt(OrtRunner(Bundle.open(narrow), ONE))
    assert float(np.abs(prompt(runner()) - old).max()) > 0.5 * float(np.abs(old).max())
    engine.rollback()
    assert runner().sessions.graphs == before
    assert answer_once(engine, QUESTION)[0] == text


def test_a_plan_that_names_no_level_is_damaged(narrow: Path, random_bundle: Path) -> None:
    bundle = Bundle.open(narrow)
    plan: dict[str, Any] = bundle.model["plan"]
    assert prefill_level(bundle, TWO) == 1
    assert prefill_level(bundle, ONE) is None
    assert prefill_level(bundle, EngineOptions(provider="openvino")) is None
    assert prefill_level(Bundle.open(random_bundle), TWO) is None
    for wrong, shown in (({"prefill_level": 3}, "3"), ({"prefill_level": True}, "True"), ("fp32", "'fp32'")):
        plan["phases"] = wrong
        with pytest.raises(Damaged, match=f"plan.phases.prefill_level is {shown}; expected one of 0, 1, 4, or null"):
            prefill_level(bundle, TWO)
    plan["phases"] = {"prefill_level": None}
    assert prefill_level(bundle, TWO) is None


def test_inspect_tells_of_both(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from foveola.cli import main

    assert main(["inspect", str(narrow)]) == 0
    assert "prompts at accuracy level 1, tokens at 4; 0.1 MiB more" in capsys.readouterr().out
    assert main(["inspect", str(narrow), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["plan"]["phases"]["prefill_level"] == 1
