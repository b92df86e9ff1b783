"""Whole graphs in the profile ``portable``: standard operators only, equal to the model, the same answer."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")

from foveola.artifact import Bundle  # noqa: E402
from foveola.engine.engine import Engine  # noqa: E402
from foveola.engine.once import answer_once  # noqa: E402
from foveola.engine.options import EngineOptions  # noqa: E402
from foveola.exchange import Request, Sampling, Turn  # noqa: E402
from foveola.lower.compile import compile_checkpoint  # noqa: E402
from foveola.lower.options import CompileOptions  # noqa: E402
from tests.family.asking import picture  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LATER = {"RMSNormalization", "RotaryEmbedding", "Attention"}
"""Came with opset 23; compilers of vendors do not read them yet."""


@pytest.fixture(scope="module")
def portable(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    options = CompileOptions.of_precision("fp32", profile="portable", max_length=512)
    return compile_checkpoint(checkpoint, tmp_path_factory.mktemp("portable") / "bundle", options)


def nodes(graph: Any) -> Iterator[Any]:
    """Every node, those of bodies included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from nodes(body)


def test_there_are_standard_operators_only_and_they_compute_what_the_model_does(portable: Bundle) -> None:
    assert portable.model["profile"] == "portable"
    for file in portable.model["graphs"].values():
        made = onnx.load(str(portable.file(file)))
        assert {entry.domain for entry in made.opset_import} == {""}
        assert {node.domain for node in nodes(made.graph)} <= {"", "ai.onnx"}
        assert not LATER & {node.op_type for node in nodes(made.graph)}
        assert not made.functions
        onnx.checker.check_model(str(portable.file(file)))
    errors = next(finding for finding in portable.lineage if finding.step == "lower.parity").after
    assert {"vision_features_error", "embed_rows_error", "decoder_logits_error"} <= errors.keys()
    assert max(map(float, errors.values())) <= 1e-4


def test_it_answers_as_the_profile_of_onnx_runtime_does(portable: Bundle, compiled: Callable[[str], Bundle]) -> None:
    def said(bundle: Bundle) -> str:
        turn = Turn("user", "Which defect is this?", tuple(png(size) for size in ((120, 90), (60, 200))))
        engine = Engine.open(bundle, EngineOptions(threads=1, slots=1))
        try:
            return answer_once(engine, Request("r", (turn,), Sampling(max_tokens=24)))[0]
        finally:
            engine.close(5)

    text = said(portable)
    assert len(text) > 10
    assert text == said(compiled("fp32"))


def png(size: tuple[int, int]) -> bytes:
    stream = io.BytesIO()
    picture(*size).save(stream, "PNG")
    return stream.getvalue()
