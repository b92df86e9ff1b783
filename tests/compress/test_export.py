from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.compress.export import Export  # noqa: E402
from foveola.compress.recipe import Recipe  # noqa: E402
from foveola.compress.rounding import Round  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.loading import load  # noqa: E402
from tests.compress.samples import picture_and_text  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = (Round(("*.attn.*", "*.mlp.*", "*.o_proj"), "int4/32"), Round(("*.embed_tokens",), "int8/64"))


@pytest.fixture(scope="module")
def packed(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return compress(checkpoint, Recipe(STEPS), tmp_path_factory.mktemp("packed") / "out")


@pytest.fixture(scope="module")
def exported(packed: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return compress(packed.path, Recipe((Export(),)), tmp_path_factory.mktemp("exported") / "out")


def test_codes_stay_what_they_are(packed: Checkpoint, exported: Checkpoint) -> None:
    family = family_of(packed.config)
    before, after = load(packed, family), load(exported, family)
    for name, parameter in before.named_parameters():
        assert torch.equal(parameter, after.get_parameter(name)), name
    assert "foveola_packed" not in exported.config
    (group,) = exported.config["quantization_config"]["config_groups"].values()
    assert (group["weights"]["num_bits"], group["weights"]["group_size"]) == (4, 32)
    assert "model.language_model.layers.0.self_attn.q_proj" in exported.config["quantization_config"]["ignore"]
    assert exported.lineage[-1].changed == "18 matrices as compressed-tensors, 1 written out whole"


def test_transformers_itself_reloads_it_with_equal_logits(packed: Checkpoint, exported: Checkpoint) -> None:
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    import transformers

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    ours = load(packed, family_of(packed.config))
    # transformers 5.24 reads zero points of this form with dequantize only, and then one width for all layers:
    # without it, it expects them unpacked.
    theirs = transformers.Qwen2VLForConditionalGeneration.from_pretrained(
        exported.path,
        dtype=torch.float32,
        attn_implementation="eager",
        quantization_config=transformers.CompressedTensorsConfig(dequantize=True),
    ).eval()
    inputs = picture_and_text(ours)
    with torch.no_grad():
        expected, got = ours(**inputs).logits, theirs(**inputs).logits
    assert (expected - got).abs().max() <= 1e-5 * expected.abs().max()


def test_there_must_be_something_packed(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="the checkpoint has no packed matrices to export; round it first."):
        compress(checkpoint, Recipe((Export(),)), tmp_path / "out")
