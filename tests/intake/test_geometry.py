from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foveola.exchange import BadImage
from foveola.intake.geometry import mrope_positions, pack, patch_positions, patchify
from foveola.intake.image import Picture
from foveola.intake.sizes import VisionConfig, smart_resize
from tests.intake.models import vision

CONFIG = VisionConfig.from_model(vision())
IMAGE = 9
SIZES = [(28, 28), (1, 1), (26, 28), (300, 200), (199, 1), (2, 390), (640, 480), (1000, 6), (57, 911), (14, 4000 // 14)]


def picture(width: int, height: int, seed: int = 0) -> Picture:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(rgb, (width, height), "PNG")


# --- against transformers ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processor() -> Any:
    pytest.importorskip("torch")
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    return module.Qwen2VLImageProcessorPil(
        min_pixels=CONFIG.min_pixels, max_pixels=CONFIG.max_pixels, patch_size=14, merge_size=2, temporal_patch_size=2
    )


@pytest.mark.torch
def test_smart_resize_is_the_reference(processor: Any) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as reference

    chance = np.random.default_rng(0)
    for _ in range(3000):
        height, width = (int(v) for v in np.exp(chance.uniform(0, 9, 2)))
        low = int(np.exp(chance.uniform(6, 9)))
        high = low * int(chance.integers(1, 400))
        factor = int(chance.choice([16, 28, 32]))
        try:
            expected = reference(height, width, factor, low, high)
        except ValueError:
            with pytest.raises(BadImage):
                smart_resize(height, width, factor, low, high)
        else:
            assert smart_resize(height, width, factor, low, high) == expected


@pytest.mark.torch
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_patches_are_the_reference_s_to_the_last_bit(processor: Any, size: tuple[int, int]) -> None:
    from PIL import Image

    one = picture(*size)
    reference = processor(Image.fromarray(one.rgb), return_tensors="np")
    packed = pack([one], CONFIG)
    frames = reference["pixel_values"].reshape(-1, 3, 2, 14 * 14)
    assert np.array_equal(frames[:, :, 0], frames[:, :, 1])  # a still picture is two equal frames
    assert packed.pixel_values.dtype == np.float32
    assert np.array_equal(packed.pixel_values, frames[:, :, 0].reshape(len(frames), -1))
    assert [[1, *grid] for grid in packed.grids] == reference["image_grid_thw"].tolist()


@pytest.mark.torch
def test_both_frames_are_there_where_a_model_wants_them(processor: Any) -> None:
    from PIL import Image

    one = picture(120, 90)
    config = VisionConfig.from_model(vision(temporal_patch_size=2))
    reference = processor(Image.fromarray(one.rgb), return_tensors="np")
    assert np.array_equal(pack([one], config).pixel_values, reference["pixel_values"])


@pytest.mark.torch
def test_several_pictures_are_the_reference_s_one_after_the_other(processor: Any) -> None:
    from PIL import Image

    pictures = [picture(*size, seed=index) for index, size in enumerate(SIZES[3:7])]
    reference = processor([Image.fromarray(one.rgb) for one in pictures], return_tensors="np")
    packed = pack(pictures, CONFIG)
    expected = reference["pixel_values"].reshape(-1, 3, 2, 14 * 14)[:, :, 0].reshape(len(packed.pixel_values), -1)
    assert np.array_equal(packed.pixel_values, expected)


@pytest.mark.torch
@pytest.mark.parametrize("merge", [1, 2])
def test_vision_positions_are_the_reference_s(merge: int) -> None:
    torch = pytest.importorskip("torch")
    from transformers.vision_utils import get_vision_cu_seqlens, get_vision_position_ids

    grids = [(4, 6), (2, 2), (10, 4)]
    grid_thw = torch.tensor([[1, *grid] for grid in grids])
    ours = np.concatenate([patch_positions(grid, merge) for grid in grids])
    assert np.array_equal(ours, get_vision_position_ids(grid_thw, merge).numpy())
    packed = pack([picture(84, 56), picture(28, 28, 1)], CONFIG)
    boundaries = get_vision_cu_seqlens(torch.tensor([[1, *grid] for grid in packed.grids])).tolist()
    starts = np.flatnonzero(np.diff(packed.segment_ids, prepend=-1))
    assert [*starts.tolist(), len(packed.segment_ids)] == boundaries


CONVERSATIONS: list[list[int | tuple[int, int]]] = [
    [5, 5, 5],
    [(4, 6)],
    [1, (2, 2), 1],
    [1, 2, (4, 6), 3, 4, 5, (10, 4), 6],
    [(2, 8), 7, (8, 2), 7, (6, 6)],
    [1] * 20 + [(2, 30)] + [2] * 3 + [(30, 2)],
]


def laid_out(conversation: list[int | tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
    ids: list[int] = []
    for part in conversation:
        ids.extend([part] if isinstance(part, int) else [IMAGE] * (part[0] * part[1] // 4))
    return ids, [part for part in conversation if not isinstance(part, int)]


@pytest.mark.torch
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
def test_mrope_positions_are_the_reference_s(conversation: list[int | tuple[int, int]]) -> None:
    torch = pytest.importorskip("torch")
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    ids, grids = laid_out(conversation)
    # The method needs two things of its model.
    holder = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2)))
    holder.get_vision_position_ids = Qwen2VLModel.get_vision_position_ids.__get__(holder)
    tokens = torch.tensor([ids])
    expected, deltas = Qwen2VLModel.get_rope_index(
        holder,
        tokens,
        (tokens == IMAGE).int(),
        image_grid_thw=torch.tensor([[1, *grid] for grid in grids]) if grids else None,
    )
    positions, following = mrope_positions(ids, grids, image_token_id=IMAGE, merge_size=2)
    assert positions.dtype == np.int64
    assert np.array_equal(positions, expected[:, 0].numpy())
    assert following == len(ids) + int(deltas[0, 0])


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_positions_of_a_small_prompt() -> None:
    positions, following = mrope_positions([1, 9, 9, 9, 9, 9, 9, 1, 1], [(4, 6)], image_token_id=IMAGE, merge_size=2)
    assert positions.tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4, 5],
        [0, 1, 1, 1, 2, 2, 2, 4, 5],
        [0, 1, 2, 3, 1, 2, 3, 4, 5],
    ]
    assert following == 6


def test_pictures_side_by_side_are_told_apart_by_their_grids() -> None:
    positions, following = mrope_positions([9, 9], [(2, 2), (2, 2)], image_token_id=IMAGE, merge_size=2)
    assert positions[0].tolist() == [0, 1]
    assert following == 2


def test_nothing_at_all() -> None:
    positions, following = mrope_positions([], [], image_token_id=IMAGE, merge_size=2)
    assert positions.shape == (3, 0)
    assert following == 0


@pytest.mark.parametrize("ids", [[9], [9, 9, 9], [1, 1]])
def test_a_wrong_number_of_visual_tokens(ids: list[int]) -> None:
    with pytest.raises(ValueError, match=f"the prompt holds {ids.count(9)} visual tokens, the pictures need 2"):
        mrope_positions(ids, [(2, 4)], image_token_id=IMAGE, merge_size=2)


def test_a_picture_torn_apart() -> None:
    with pytest.raises(ValueError, match="the visual tokens of one picture are not side by side"):
        mrope_positions([9, 1, 9], [(2, 4)], image_token_id=IMAGE, merge_size=2)


def test_a_patch_holds_its_pixels_channel_by_channel() -> None:
    rgb = np.arange(56 * 84 * 3, dtype=np.uint32).reshape(56, 84, 3).astype(np.uint8)
    config = VisionConfig.from_model(vision(image_mean=[0, 0, 0], image_std=[1, 1, 1]))
    patches = patchify(rgb, (84, 56), config).reshape(24, 3, 14, 14)
    for index, (row, column) in enumerate(patch_positions((4, 6), 2)):
        expected = rgb[row * 14 : row * 14 + 14, column * 14 : column * 14 + 14].transpose(2, 0, 1)
        assert np.allclose(patches[index] * 255, expected, atol=1e-4)


def test_blocks_of_four_patches_lie_together() -> None:
    assert patch_positions((2, 4), 2).tolist() == [
        [0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3],
    ]  # fmt: skip


def test_what_pack_returns() -> None:
    packed = pack([picture(84, 56), picture(28, 28)], vision())
    assert packed.grids == ((4, 6), (4, 4))
    assert packed.pixel_values.shape == (40, 3 * 14 * 14)
    assert packed.position_ids.shape == (40, 2)
    assert packed.segment_ids.tolist() == [0] * 24 + [1] * 16
    assert [(use.original, use.used, use.tokens) for use in packed.images] == [
        ((84, 56), (84, 56), 6),
        ((28, 28), (56, 56), 4),
    ]


def test_no_pictures() -> None:
    packed = pack([], CONFIG)
    assert packed.pixel_values.shape == (0, 588)
    assert packed.position_ids.shape == (0, 2)
    assert packed.grids == packed.images == ()


def test_a_picture_decoded_small_keeps_the_size_of_its_original() -> None:
    whole = picture(800, 600)
    small = Picture(np.ascontiguousarray(whole.rgb[::2, ::2]), (800, 600), "JPEG")
    assert pack([small], CONFIG).images == pack([whole], CONFIG).images


@pytest.mark.parametrize("size", [(201, 1), (2, 401)])
def test_a_ratio_beyond_200(size: tuple[int, int]) -> None:
    with pytest.raises(BadImage) as caught:
        smart_resize(size[1], size[0], 28, 3136, 200704)
    assert caught.value.message == (
        f"The picture is {size[0]} x {size[1]} pixels; one side may be at most 200 times the other. "
        "Crop it, or cut it into several pictures."
    )
