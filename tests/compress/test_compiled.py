from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from foveola.compress.recipe import Recipe  # noqa: E402
from foveola.compress.rounding import Round  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.quantised import packed_matrices, with_tied  # noqa: E402
from foveola.weights.skeleton import skeleton  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.slow
def test_the_codes_of_the_checkpoint_are_those_of_the_bundle(checkpoint: Path, tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    from foveola.lower import CompileOptions
    from foveola.lower.compile import compile_checkpoint

    recipe = Recipe((Round(("*.mlp.*", "*.attn.*"), "int4/64"), Round(("*.o_proj", "*.embed_tokens"), "int8/32")))
    made = compress(checkpoint, recipe, tmp_path / "packed")
    bundle = compile_checkpoint(made.path, tmp_path / "bundle", CompileOptions.of_precision("int4"))
    graph = onnx.load(bundle.file("decoder.onnx")).graph
    held = {tuple(numpy_helper.to_array(one).flatten()[:64]) for one in graph.initializer if one.data_type == 2}
    model = skeleton(made, family_of(made.config))
    held_packed = with_tied(packed_matrices(made, model), made, {"lm_head": "model.language_model.embed_tokens"})
    kept = {path: read() for path, read in held_packed.items()}
    for path in (
        "model.language_model.layers.1.mlp.down_proj",
        "model.language_model.layers.0.self_attn.o_proj",
        "lm_head",
    ):
        assert tuple(kept[path].values.flatten()[:64].tolist()) in held, path
    rounding = next(finding for finding in bundle.lineage if finding.step == "lower.round")
    assert "int4/64@4 as packed" in rounding.changed
    assert [finding.step for finding in bundle.lineage][:2] == ["compress.round", "compress.round"]
