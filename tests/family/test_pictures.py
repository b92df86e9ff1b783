"""For every family that sees, without its decoder: the vision graph against the model's own, the prompt against its
processor's. Quick beside ``test_line.py``, which takes them all the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.exchange import Turn  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.intake import Picture, PromptFormat  # noqa: E402
from foveola.intake.geometries import geometry_of  # noqa: E402
from foveola.lower.compile import model_section  # noqa: E402
from foveola.lower.export_tower import export_tower  # noqa: E402
from foveola.lower.options import CompileOptions  # noqa: E402
from foveola.lower.pictures import tiled  # noqa: E402
from foveola.lower.session import open_session, run  # noqa: E402
from foveola.weights.loading import load  # noqa: E402
from tests.family.asking import asked, picture  # noqa: E402
from tests.family.making import MAKERS, checkpoint  # noqa: E402

pytestmark = pytest.mark.torch

TILED = ("llava", "llava_next", "idefics3", "smolvlm", "phi3_v", "internvl")
SIZES: list[list[tuple[int, int]]] = [[(120, 90)], [(40, 130), (200, 60), (64, 64)], []]


@pytest.fixture(scope="module", params=[name for name in MAKERS if name != "llama"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    folder = checkpoint(tmp_path_factory.mktemp(request.param) / "checkpoint", request.param)
    opened = Checkpoint.open(folder)
    family = family_of(opened.config)
    return folder, load(opened, family), model_section(opened, family, CompileOptions(max_length=1024))


def test_the_graph_of_a_tower_over_tiles_is_the_model_s(made: tuple[Path, Any, Any]) -> None:
    folder, model, section = made
    if section["family"] not in TILED:
        pytest.skip("its tower is not over tiles")
    opened = Checkpoint.open(folder)
    family = family_of(opened.config)
    session = open_session(export_tower(model, family, opened.config, {}))
    cases = list(tiled(model, family, section["vision"], None))
    assert len(cases) == 3
    for _, inputs, wanted in cases:
        features = run(session, inputs)["features"]
        assert features.shape == tuple(wanted.shape)
        assert np.abs(features - wanted.numpy()).max() <= 1e-5 * np.abs(wanted.numpy()).max()


@pytest.mark.parametrize("sizes", SIZES, ids=["one", "three", "none"])
def test_a_prompt_is_the_processor_s(made: tuple[Path, Any, Any], sizes: list[tuple[int, int]]) -> None:
    folder, model, section = made
    form = PromptFormat(section, Tokenizer.from_file(str(folder / "tokenizer.json")))
    geometry = geometry_of(section)
    assert geometry is not None
    pictures = [picture(*size, seed) for seed, size in enumerate(sizes)]
    question = "Which defect is this? Where?"
    draft = form.draft([Turn("user", question, (b"",) * len(pictures))])
    views = geometry.fit(sizes)
    shown = form.show(draft, views)
    inputs = asked(folder, model, pictures, question)
    assert len(shown.ids) == inputs["attention_mask"].shape[1]
    if "input_ids" in inputs:
        assert shown.ids.tolist() == inputs["input_ids"][0].tolist()
    else:  # a family whose processor gives embeddings: text tokens must be the same rows
        table = model.get_input_embeddings().weight
        text = np.setdiff1d(np.arange(len(shown.ids)), shown.visual)
        assert torch.equal(table[torch.from_numpy(shown.ids[text])], inputs["inputs_embeds"][0, torch.from_numpy(text)])
    assert len(shown.visual) == sum(view.use.tokens for view in views)
    if pictures and "pixel_values" in inputs:
        packed = geometry.pack([Picture(np.asarray(one), one.size, "PNG") for one in pictures], views)
        theirs = inputs["pixel_values"].flatten(0, -4) if inputs["pixel_values"].ndim > 3 else inputs["pixel_values"]
        assert _same_pixels(packed.pixel_values, theirs.numpy())


def _same_pixels(ours: Any, theirs: Any) -> bool:
    """Equal to the last bit, but for tiles of zeros that fill a batch up, and for the second frame of a still one."""
    if theirs.ndim == 2:
        theirs = theirs.reshape(len(theirs), 3, 2, -1)[:, :, 0].reshape(len(theirs), -1)
    else:
        theirs = theirs[[bool(tile.any()) for tile in theirs]]
    return bool(np.array_equal(ours, theirs))
