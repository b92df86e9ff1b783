from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.compress import awq_blocks  # noqa: E402
from foveola.compress.awq import Awq, HalfOptions  # noqa: E402
from foveola.compress.example import predicted  # noqa: E402
from foveola.compress.recipe import Recipe  # noqa: E402
from foveola.compress.rounding import Round  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.compress.samples import read_examples  # noqa: E402
from foveola.exchange import Damaged, Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.loading import load  # noqa: E402

pytestmark = pytest.mark.torch
QUICK = HalfOptions(ratios=4)
OPTIONS: dict[str, Any] = {"vision": QUICK, "decoder": QUICK, "held_out": 4}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    draw = np.random.default_rng(0)
    lines: list[dict[str, str]] = []
    for number in range(8):
        Image.fromarray(draw.integers(0, 256, (56, 84, 3), dtype=np.uint8)).save(folder / f"{number}.png")
        lines.append({"prompt": "Which defect is it?", "answer": f"a crack {number}", "image": f"{number}.png"})
    lines += [{"text": "a scratch at the top left, a pit in the centre " * (1 + number)} for number in range(8)]
    path = folder / "samples.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


@pytest.fixture(scope="module")
def made(checkpoint: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    out = tmp_path_factory.mktemp("awq") / "out"
    recipe = Recipe(
        (Awq(**OPTIONS, overrides={"*.merger.mlp.2": "keep", "*.down_proj": "int8/64"}),), calibration=samples
    )
    return compress(checkpoint, recipe, out)


def divergence(checkpoint: Path, other: Path, samples: Path) -> float:
    """Mean KL divergence of the answers' tokens from the original's."""
    source = Checkpoint.open(checkpoint)
    family = family_of(source.config)
    before, after = load(source, family), load(Checkpoint.open(other), family)
    total = []
    with torch.no_grad():
        for example in read_examples(samples, source, family):
            p, q = (torch.log_softmax(predicted(model, example)[0], -1) for model in (before, after))
            total.append((p.exp() * (p - q)).sum(-1).mean())
    return float(torch.stack(total).mean())


def test_every_matrix_is_in_its_format_and_tells_what_was_tried(made: Checkpoint) -> None:
    finding = made.lineage[-1]
    layers = {layer["path"]: layer for layer in finding.options["layers"]}
    assert len(layers) == 2 * 4 + 2 * 7 + 1  # tower, decoder, the merger's first
    down = layers["model.language_model.layers.0.mlp.down_proj"]
    assert down["format"] == "int8/64"
    again = [name for name in down["tried"] if "+descent" in name]
    assert set(down["tried"]) == {"scales", "scales+clip", "scales+gptq", "scales+clip+gptq", *again}
    assert len(again) == 2  # once more with scales refitted
    assert down["measured"] == min(down["tried"].values())
    assert made.config["foveola_packed"]["model.visual.blocks.0.attn.qkv"] == {"bits": 4, "block": 32, "inner": 64}
    assert "model.visual.merger.mlp.2" not in made.config["foveola_packed"]
    assert made.config["foveola_packed"]["model.language_model.embed_tokens"]["bits"] == 8
    assert finding.after["relative_output_error"] < 0.8 * finding.before["relative_output_error"]
    assert finding.before["weight_bytes"] > 4 * finding.after["weight_bytes"]


def test_the_answers_are_nearer_to_the_originals_than_after_rounding(
    checkpoint: Path, made: Checkpoint, samples: Path, tmp_path: Path
) -> None:
    linear = ("model.visual.blocks.*", "model.visual.merger.mlp.0", "*.self_attn.*", "*.gate_proj", "*.up_proj")
    rest = ("*.down_proj", "*.embed_tokens", "*.patch_embed.proj")
    plain = compress(checkpoint, Recipe((Round(linear), Round(rest, "int8/32"))), tmp_path / "plain")
    assert divergence(checkpoint, made.path, samples) < 0.7 * divergence(checkpoint, plain.path, samples)


def test_one_half_alone(checkpoint: Path, samples: Path, tmp_path: Path) -> None:
    step = Awq("off", QUICK, held_out=4, embedding="keep", patch="keep")
    done = compress(checkpoint, Recipe((step,), calibration=samples), tmp_path / "out")
    assert {layer["path"].split(".")[1] for layer in done.lineage[-1].options["layers"]} == {"language_model"}
    assert not any("visual" in path for path in done.config["foveola_packed"])


def test_an_interrupted_run_gives_the_same_weights(
    checkpoint: Path, made: Checkpoint, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(
        (Awq(**OPTIONS, overrides={"*.merger.mlp.2": "keep", "*.down_proj": "int8/64"}),), calibration=samples
    )
    original = awq_blocks._check_unchanged
    blocks: list[str] = []

    def stopping(block: str, before: Any, after: Any) -> None:
        blocks.append(block)
        if block == "model.language_model.layers.1" and blocks.count(block) == 1:
            raise KeyboardInterrupt
        original(block, before, after)

    monkeypatch.setattr(awq_blocks, "_check_unchanged", stopping)
    with pytest.raises(KeyboardInterrupt):
        compress(checkpoint, recipe, tmp_path / "out")
    again = compress(checkpoint, recipe, tmp_path / "out")
    assert blocks[-2:] == ["model.language_model.layers.1"] * 2
    digests = [{file.name: file.read_bytes() for file in one.path.glob("*.safetensors")} for one in (made, again)]
    assert digests[0] == digests[1]


def test_a_fold_that_changes_the_function_is_found(
    checkpoint: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awq_blocks, "TOLERANCE", 1e-12)
    with pytest.raises(Damaged, match="folding scales into model.visual.blocks.0 changed its result by "):
        compress(checkpoint, Recipe((Awq(**OPTIONS),), calibration=samples), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_done_is_said(checkpoint: Path, samples: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="awq needs samples: add \\[calibration\\] samples = FILE to the recipe."):
        compress(checkpoint, Recipe((Awq(),)), tmp_path / "out")
    with pytest.raises(Invalid, match="there are 16 samples, and one in 16 is held out; give at least 32, better 128."):
        compress(checkpoint, Recipe((Awq(held_out=16),), calibration=samples), tmp_path / "out")
    with pytest.raises(Invalid, match="the pattern '\\*.nothing' matches no module"):
        step = Awq(overrides={"*.nothing": "int8"}, held_out=4)
        compress(checkpoint, Recipe((step,), calibration=samples), tmp_path / "out")
    for wrong in ({"bits": 3}, {"group": 33}, {"ratios": 0}):
        with pytest.raises(ValueError, match="expected"):
            HalfOptions(**wrong)
