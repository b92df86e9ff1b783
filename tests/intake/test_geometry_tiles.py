"""Pictures cut into tiles: pixel for pixel what transformers' own processors make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, Damaged, OverBudget
from foveola.intake.geometries import geometry_of
from foveola.intake.geometry_phi3 import cubic
from foveola.intake.geometry_tiles import spread, tiled
from foveola.intake.image import Picture

CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
TILES = {"tile": 56, "patch_size": 14, "merge_size": 1, "max_tiles": 64, "resample": "bicubic", **CLIP}
PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]
VISION: dict[str, dict[str, Any]] = {
    "llava": {**TILES, "shortest_edge": 56},
    "llava_next": {**TILES, "pinpoints": PINPOINTS},
    "internvl": {
        **TILES, "merge_size": 2, "max_tiles_each": 6, "min_tiles_each": 1, "before_picture": "<img>",
        "after_picture": "</img>",
    },
    "phi3_v": {**TILES, "merge_size": 2, "num_crops": 4, "resample": "bilinear"},
    "idefics3": {
        **TILES, **HALF, "tile": 64, "patch_size": 16, "merge_size": 2, "longest_edge": 256, "resample": "lanczos",
        "tile_border": "<fake_token_around_image>", "whole_picture": "<global-img>",
    },
}  # fmt: skip
SIZES = [(56, 56), (120, 90), (90, 121), (300, 40), (33, 200), (1, 7), (640, 480), (57, 56), (111, 224), (500, 499)]


def geometry(name: str, **changes: Any) -> Any:
    return geometry_of({"geometry": name, "vision": {**VISION[name], **changes}})


def picture(width: int, height: int, seed: int = 0) -> Picture:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(rgb, (width, height), "PNG")


def packed(name: str, one: Picture, **changes: Any) -> Any:
    rule = geometry(name, **changes)
    return rule.pack([one], rule.fit([one.original]))


@pytest.fixture(scope="module")
def transformers() -> Any:
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


# --- against transformers ---------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_square_is_the_reference_s(transformers: Any, size: tuple[int, int]) -> None:
    one = picture(*size)
    reference = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, **CLIP
    )
    expected = reference(Image.fromarray(one.rgb), return_tensors="np")["pixel_values"]
    assert np.array_equal(packed("llava", one).pixel_values, expected)


@pytest.mark.torch
@pytest.mark.parametrize("size", SIZES[:5], ids=str)
def test_a_padded_square_is_the_reference_s(transformers: Any, size: tuple[int, int]) -> None:
    one = picture(*size)
    reference = transformers.LlavaImageProcessorPil(
        do_pad=True, size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, **CLIP
    )
    expected = reference(Image.fromarray(one.rgb), return_tensors="np")["pixel_values"]
    assert np.array_equal(packed("llava", one, pad_to_square=True).pixel_values, expected)


@pytest.mark.torch
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_canvas_of_any_ratio_is_the_reference_s(transformers: Any, size: tuple[int, int]) -> None:
    one = picture(*size)
    reference = transformers.LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, image_grid_pinpoints=PINPOINTS, **CLIP
    )
    expected = reference(Image.fromarray(one.rgb), return_tensors="np")["pixel_values"][0]
    assert np.array_equal(packed("llava_next", one).pixel_values, expected)


@pytest.mark.torch
@pytest.mark.parametrize("splits", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_named_tiles_are_the_reference_s(transformers: Any, size: tuple[int, int], splits: bool) -> None:
    one = picture(*size)
    reference = transformers.Idefics3ImageProcessorPil(
        size={"longest_edge": 256}, max_image_size={"longest_edge": 64}, do_image_splitting=splits
    )
    made = reference(Image.fromarray(one.rgb), return_tensors="np", return_row_col_info=True)
    ours = packed("idefics3", one, split=splits)
    assert np.array_equal(ours.pixel_values, made["pixel_values"][0])
    rows, columns = made["rows"][0][0], made["cols"][0][0]
    assert ours.grids == ((2 * max(rows, 1), 2 * max(columns, 1)),)


@pytest.mark.torch
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_nearest_ratio_is_the_reference_s(transformers: Any, size: tuple[int, int]) -> None:
    one = picture(*size)
    reference = transformers.GotOcr2ImageProcessorPil(size={"height": 56, "width": 56}, max_patches=6, **CLIP)
    made = reference(Image.fromarray(one.rgb), crop_to_patches=True, return_tensors="np")
    assert np.array_equal(packed("internvl", one).pixel_values, made["pixel_values"])


@pytest.mark.torch
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_turned_canvas_is_the_published_one(size: tuple[int, int]) -> None:
    pytest.importorskip("torch")
    from tests.family.asking import hd_transform

    if size[0] / size[1] > 50 or size[1] / size[0] > 50:
        pytest.skip("the published code makes pictures of no height here")
    one = picture(*size)
    expected, grid = hd_transform(Image.fromarray(one.rgb), 4, 56)
    ours = packed("phi3_v", one)
    assert ours.pixel_values.shape == tuple(expected.shape)
    assert ours.grids == ((2 * grid[0], 2 * grid[1]),)
    # Tiles to a rounding of fp32; the small whole picture is a sum of sixteen products.
    assert np.abs(ours.pixel_values[1:] - expected[1:].numpy()).max() < 1e-6
    assert np.abs(ours.pixel_values[0] - expected[0].numpy()).max() < 2e-5


@pytest.mark.torch
@pytest.mark.parametrize(("length", "wanted"), [(56, 56), (112, 56), (168, 56), (40, 56)])
def test_cubic_scaling_is_torch_s(length: int, wanted: int) -> None:
    torch = pytest.importorskip("torch")
    line = np.random.default_rng(0).standard_normal((length, 3)).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(line)[None, None], size=(wanted, 3), mode="bicubic", align_corners=False
    )
    assert np.allclose(cubic(length, wanted) @ line, expected[0, 0].numpy(), atol=1e-5)


# --- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VISION)
def test_there_are_as_many_cells_and_rows_as_visual_tokens(name: str) -> None:
    rule = geometry(name)
    views = rule.fit(SIZES[:5])
    together = rule.pack([picture(*size) for size in SIZES[:5]], views)
    tokens = [view.use.tokens for view in views]
    assert [sum(piece for piece in view.pieces if isinstance(piece, int)) for view in views] == tokens
    for view in views:
        cells = np.arange(view.use.tokens) if view.cells is None else view.cells
        assert len(cells) == view.use.tokens
        assert set(cells.tolist()) - {-1} == set(range(view.grid[0] * view.grid[1]))
    features = len(together.pixel_values) * rule.side**2
    if "gather" in together.inputs:
        gathered = together.others["gather"]
        assert len(gathered) == sum(tokens)
        assert set(range(features)) >= {row for row in gathered.tolist() if row < features}
        assert max(gathered) < features + 2
    else:
        assert features == sum(tokens)
    assert set(together.feeds()) == set(together.inputs)


@pytest.mark.parametrize("name", ["llava_next", "phi3_v"])
def test_pictures_apart_are_what_each_would_be_alone(name: str) -> None:
    rule = geometry(name)
    pictures = [picture(*size) for size in SIZES[1:4]]
    together = rule.pack(pictures, rule.fit([one.original for one in pictures]))
    assert len(together.apart) == 3
    for one, part in zip(pictures, together.apart, strict=True):
        alone = packed(name, one)
        assert alone.apart == ()
        assert all(np.array_equal(alone.feeds()[key], array) for key, array in part.feeds().items())


@pytest.mark.parametrize("name", ["llava_next", "idefics3", "internvl", "phi3_v"])
def test_less_room_makes_coarser_views_never_a_cut_prompt(name: str) -> None:
    rule = geometry(name)
    sizes = [(640, 480), (300, 900)]
    full = sum(view.length for view in rule.fit(sizes))
    used = []
    for room in (full, full - 1, full // 2):
        try:
            views = rule.fit(sizes, room_tokens=room)
        except OverBudget:
            continue
        used.append(sum(view.length for view in views))
        assert used[-1] <= room
    assert used[0] == full
    assert used == sorted(used, reverse=True)
    assert len(set(used)) > 1
    with pytest.raises(OverBudget) as caught:
        rule.fit(sizes, room_tokens=3)
    assert caught.value.message.startswith("2 pictures need at least ")
    assert "and there is room for 3 tokens and 64 tiles. Send fewer pictures" in caught.value.message


def test_the_tower_s_own_bound_counts_tiles_of_all_pictures() -> None:
    rule = geometry("internvl", max_tiles=10)
    assert sum(view.tiles for view in rule.fit([(640, 480), (300, 900)])) <= 10
    with pytest.raises(OverBudget, match="11 tiles, and there is 10 tiles"):
        rule.fit([(60, 60)] * 11)


def test_a_picture_too_long() -> None:
    with pytest.raises(BadImage, match="The picture is 402 x 2 pixels; one side may be at most 200 times the other"):
        geometry("llava").fit([(402, 2)])


def test_numbers_of_a_canvas_in_reading_order() -> None:
    assert tiled((1, 2), 2).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert spread((2, 2), (4, 4)).tolist() == [5, 7, 13, 15]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tile": 0}, "vision.tile is a whole number of at least 1"),
        ({"image_mean": [1]}, "vision.image_mean is a list of three numbers"),
        ({"resample": "magic"}, "vision.resample is one of"),
        ({"pinpoints": [[1]]}, "the section vision does not describe the geometry 'llava_next'"),
    ],
)
def test_a_damaged_description(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Damaged, match=message):
        geometry("llava_next", **change)


def test_an_unknown_geometry_is_named_with_the_known_ones() -> None:
    with pytest.raises(Damaged, match="names the geometry 'spheres'; this version knows idefics3, internvl, llava"):
        geometry_of({"geometry": "spheres", "vision": {}})
    assert geometry_of({"geometry": "text"}) is None
