"""The batched training path is transformers' own forward over the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil  # noqa: E402

from foveola.tiny.model import Shape, build_model, gaze, read, read_layers, see, to_patches, vision_rope  # noqa: E402
from foveola.tiny.tokens import train_tokenizer  # noqa: E402
from foveola.tiny.train import star_mask  # noqa: E402
from foveola.tiny.turns import Packer  # noqa: E402

SMALL = Shape(vision_width=64, vision_depth=2, vision_heads=2, width=64, inner=96, depth=2, heads=2, kv_heads=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return train_tokenizer(Path(tmp_path_factory.mktemp("tokenizer")))


@pytest.mark.parametrize("grid", [(8, 8), (4, 16), (10, 6)])
def test_training_path_equals_transformers(tokenizer, grid):
    torch.manual_seed(0)
    model = build_model(SMALL, tokenizer).eval()
    packer = Packer(tokenizer)
    turns = [("What defect is here?", "scratch"), ("Read the lot code.", "A7K39"), ("有什么缺陷?", "划痕")]
    row = packer.pack(grid, turns)
    pixels = np.random.default_rng(0).integers(0, 256, (grid[0] * 14, grid[1] * 14, 3), dtype=np.uint8)
    ours = torch.from_numpy(to_patches(pixels))
    processor = Qwen2VLImageProcessorPil(
        patch_size=14, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"shortest_edge": 28 * 28, "longest_edge": 448 * 448},
    )  # fmt: skip
    theirs = processor(images=[pixels], return_tensors="pt")
    assert theirs["image_grid_thw"].tolist() == [[1, *grid]]
    as_frames = theirs["pixel_values"].view(-1, 3, 2, 14, 14)
    assert torch.allclose(as_frames[:, :, 0].flatten(1), ours, atol=1e-6)

    with torch.no_grad():
        _, features = see(model, ours[None], vision_rope(model, grid))
        x = model.model.language_model.embed_tokens(torch.from_numpy(row.ids)[None])
        start = packer.picture_at
        x = torch.cat([x[:, :start], features, x[:, start + features.shape[1] :]], 1)
        states = read(
            model, x, torch.from_numpy(row.positions)[:, None], star_mask(torch.from_numpy(row.segments)[None])
        )
        logits = model.lm_head(states)[0]
        for number, (question, answer) in enumerate(turns, 1):
            prefix, _, _ = packer.prefix(grid)
            ids = torch.tensor([prefix + packer.question(question) + packer.encode(answer)])
            expected = model(
                input_ids=ids, pixel_values=theirs["pixel_values"], image_grid_thw=theirs["image_grid_thw"],
                mm_token_type_ids=(ids == model.config.image_token_id).int(), attention_mask=torch.ones_like(ids),
            ).logits[0, len(prefix) :]  # fmt: skip
            got = logits[torch.from_numpy(row.segments == number)]
            assert got.shape == expected.shape
            assert torch.allclose(got, expected, atol=2e-4), (got - expected).abs().max()


def test_chat_template_gives_the_packed_prefix(tokenizer):
    packer = Packer(tokenizer)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Hi?"}]}],
        tokenize=False, add_generation_prompt=True,
    )  # fmt: skip
    grid = (2, 2)
    assert packer.encode(text) == packer.prefix(grid)[0] + packer.question("Hi?")


def test_codes_are_read_character_by_character(tokenizer):
    assert len(tokenizer.encode("A7K39-ZQ", add_special_tokens=False)) == 8


@pytest.mark.parametrize("groups", [1, 2])
def test_gaze_is_the_attention_of_transformers_own_layer(tokenizer, groups):
    torch.manual_seed(0)
    model = build_model(replace(SMALL, heads=4, kv_heads=groups), tokenizer).eval()
    model.set_attn_implementation("eager")
    ids = torch.tensor([packer_ids(tokenizer)])
    places = torch.arange(ids.shape[1])[None, None].expand(3, 1, -1)
    with torch.no_grad():
        theirs = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True)
        x = model.model.language_model.embed_tokens(ids)
        mask = star_mask(torch.zeros_like(ids))
        first = next(iter(read_layers(model, x, places, mask)))
        slots = torch.tensor([[2, 4]])
        ours = gaze(model, first, places, mask, slots, 1)
    assert torch.allclose(ours.exp()[0], theirs.attentions[1][0, [0, 2]][:, [2, 4]], atol=1e-5)


def packer_ids(tokenizer) -> list[int]:
    return Packer(tokenizer).encode("Where is the scratch?")[:8]
