from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.exchange import Invalid, Unsupported  # noqa: E402
from foveola.loop.qwen2_vl import Qwen2VL  # noqa: E402
from tests.checkpoints import random_checkpoint  # noqa: E402

pytestmark = pytest.mark.torch
CLASSES = ("crack", "pit", "no defect")
SIZE = (56, 84)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(random_checkpoint(tmp_path_factory.mktemp("qwen") / "checkpoint"))


@pytest.fixture(scope="module")
def pupil(checkpoint: Checkpoint) -> Qwen2VL:
    return Qwen2VL.open(checkpoint, CLASSES, "What is it?", SIZE)


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (2, *SIZE, 3), dtype=np.uint8)


def theirs(pupil: Qwen2VL, pixels: np.ndarray, said: list[int]) -> torch.Tensor:
    """Logits [L, V] of transformers' own forward over picture, question and answer."""
    patches = pupil.packer.prefix((4, 6))
    ids = torch.tensor([[*patches[0], *pupil.packer.question("What is it?"), *said]])
    from foveola.tiny.model import to_patches

    frames = torch.from_numpy(to_patches(pixels)).view(-1, 3, 1, 196).expand(-1, 3, 2, 196).flatten(1)
    out = pupil.model(
        input_ids=ids, pixel_values=frames, image_grid_thw=torch.tensor([[1, 4, 6]]),
        mm_token_type_ids=(ids == pupil.model.config.image_token_id).int(), attention_mask=torch.ones_like(ids),
    )  # fmt: skip
    logits: torch.Tensor = out.logits[0]
    return logits


@torch.no_grad()
def test_the_score_is_the_likelihood_that_transformers_gives_to_the_answer(pupil: Qwen2VL, pixels: np.ndarray) -> None:
    scores = pupil.score(pupil.see(pixels))
    end = pupil.tokenizer.convert_tokens_to_ids("<|im_end|>")
    for number, name in enumerate(CLASSES):
        said = [*pupil.packer.encode(name), end]
        logits = theirs(pupil, pixels[1], said[:-1])[-len(said) :].log_softmax(-1)
        wanted = float(logits.gather(-1, torch.tensor(said)[:, None]).sum())
        assert float(scores[1, number]) == pytest.approx(wanted, abs=1e-3)


@torch.no_grad()
def test_the_greedy_answer_is_that_of_transformers(pupil: Qwen2VL, pixels: np.ndarray) -> None:
    said: list[int] = []
    for _ in range(4):
        said.append(int(theirs(pupil, pixels[0], said)[-1].argmax()))
    assert pupil.answer(pixels, "What is it?", 4)[0] == pupil._text(said)


def test_only_the_tower_gets_gradients(pupil: Qwen2VL, pixels: np.ndarray) -> None:
    pupil.tower.requires_grad_(True)
    try:
        pupil.score(pupil.see(pixels))[:, 0].sum().backward()
        assert all(weight.grad is not None for weight in pupil.tower.parameters())
        assert all(weight.grad is None for weight in pupil.model.model.language_model.parameters())
    finally:
        pupil.tower.zero_grad()
        pupil.tower.requires_grad_(False)


def test_a_twin_does_not_follow(pupil: Qwen2VL, pixels: np.ndarray) -> None:
    twin = pupil.twin()
    with torch.no_grad():
        before = twin.see(pixels)
        twin.tower.merger.mlp[0].weight.mul_(2)
        assert not torch.equal(twin.see(pixels), before)
        assert torch.equal(pupil.see(pixels), before)


def test_another_family_is_refused(checkpoint: Checkpoint) -> None:
    from dataclasses import replace

    other = replace(checkpoint, config={**checkpoint.config, "model_type": "llava"})
    with pytest.raises(Unsupported, match="is of the family 'llava'; a repair is made of qwen2_vl only"):
        Qwen2VL.open(other, CLASSES)


def test_pictures_that_do_not_divide_into_tokens_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(Invalid, match="pictures of 100 x 112 pixels do not divide into tokens of 28"):
        Qwen2VL.open(checkpoint, CLASSES, size=(100, 112))
