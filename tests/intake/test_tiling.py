"""Elongated pictures in tiles: what is cut, what is told, and that every token stays in its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from foveola.intake.geometry import VisionConfig, patchify
from foveola.intake.geometry_packed import PackedGeometry
from foveola.intake.image import Picture
from foveola.intake.tiling import tiling

SECTION = {
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 1,
    "min_pixels": 56 * 56,
    "max_pixels": 224 * 224,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "resample": "bicubic",
    "max_patches": 4096,
    "max_tiles": 4,
}
VISION = VisionConfig.from_model(SECTION)
GEOMETRY = PackedGeometry(SECTION)
PAD = 7


def picture(width: int, height: int) -> Picture:
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], axis=-1).astype(np.uint8)
    return Picture(rgb, (width, height), "PNG")


@pytest.mark.parametrize(
    ("size", "tiles"),
    [
        ((1790, 1000), 1),  # 1.79
        ((1810, 1000), 4),
        ((1000, 1810), 4),
        ((360, 120), 1),  # small enough to be seen whole
        ((900, 120), 3),
        ((4000, 500), 4),
    ],
)
def test_which_pictures_are_cut(size: tuple[int, int], tiles: int) -> None:
    (view,) = GEOMETRY.fit([size])
    assert view.use.tiles == tiles
    assert (view.use.thumbnail is None) == (tiles == 1)
    assert view.use.tokens == sum(view.parts)
    assert view.use.original == size
    if tiles > 1:
        assert len(view.parts) == tiles + 1
        width, height = view.use.used
        assert width * height <= tiles * VISION.max_pixels
        assert abs(width / height / (size[0] / size[1]) - 1) < 0.25
        assert max(view.parts) <= 1.5 * VISION.max_pixels / VISION.factor**2


def test_the_tiles_are_the_picture() -> None:
    shown = picture(1200, 300)
    (view,) = GEOMETRY.fit([shown.original])
    packed = GEOMETRY.pack([shown], [view])
    assert view.use.thumbnail is not None
    segments = [packed.pixel_values[packed.segment_ids == index] for index in range(len(view.parts))]
    assert [len(segment) // 4 for segment in segments] == list(view.parts)
    np.testing.assert_array_equal(segments[0], patchify(shown.rgb, view.use.thumbnail, VISION))
    whole = np.asarray(Image.fromarray(shown.rgb).resize(view.use.used, resample=Image.Resampling.BICUBIC))
    assert view.tiling is not None
    for segment, (left, top, right, bottom) in zip(segments[1:], view.tiling.tiles, strict=True):
        np.testing.assert_array_equal(
            segment, patchify(whole[top:bottom, left:right], (right - left, bottom - top), VISION)
        )
    assert packed.images == (view.use,)


@pytest.mark.parametrize("size", [(1200, 300), (300, 1200)])
def test_tokens_of_tiles_have_the_positions_of_one_large_picture(size: tuple[int, int]) -> None:
    (view,) = GEOMETRY.fit([size])
    cut = view.tiling
    assert cut is not None
    ids = np.array([1, 2, *[PAD] * view.use.tokens, 3])
    positions, following = GEOMETRY.positions(ids, [view], image_token_id=PAD)
    rows, columns = cut.grid
    begin = 2 + max(cut.thumbnail_grid)
    at = 2 + view.parts[0]
    for (left, top, right, bottom), tokens in zip(cut.tiles, view.parts[1:], strict=True):
        own = positions[:, at : at + tokens]
        f = cut.factor
        expected = [(row, column) for row in range(top // f, bottom // f) for column in range(left // f, right // f)]
        assert own[0].tolist() == [begin] * tokens
        assert (own[1:].T - begin).tolist() == [list(place) for place in expected]
        at += tokens
    assert positions[:, at].tolist() == [begin + max(rows, columns)] * 3
    assert following == begin + max(rows, columns) + 1


def test_evidence_is_drawn_on_the_whole() -> None:
    (view,) = GEOMETRY.fit([(1200, 300)])
    assert view.cells is not None
    assert view.tiling is not None
    assert view.grid == view.tiling.grid
    of_tiles = view.cells[view.parts[0] :]
    assert sorted(of_tiles) == list(range(view.grid[0] * view.grid[1]))
    thumbnail = view.cells[: view.parts[0]]
    assert set(thumbnail) <= set(range(view.grid[0] * view.grid[1]))
    assert len(set(thumbnail)) == len(thumbnail)


def test_without_room_there_are_fewer_tiles_and_then_fewer_pixels() -> None:
    size = (1600, 400)
    seen = []
    for room in (1000, 280, 200, 140, 60, 30, 10):
        (view,) = GEOMETRY.fit([size], room_tokens=room)
        assert view.use.tokens <= room
        assert view.use.unbounded == GEOMETRY.fit([size])[0].use.tokens
        seen.append(view.use.tiles)
    assert seen == sorted(seen, reverse=True)
    assert seen[0] == 4
    assert seen[-1] == 1


def test_a_twelve_megapixel_photo_fits_4096_tokens_and_says_what_was_done() -> None:
    """vllm#14557: such a photo was 16 000 tokens."""
    large = PackedGeometry({**SECTION, "max_pixels": 4096 * 28 * 28, "max_patches": 4 * 4096})
    (view,) = large.fit([(4000, 3000)], room_tokens=4096 - 300)
    assert view.use.tokens <= 4096 - 300 < view.use.unbounded <= 4096
    assert view.use.used[0] < 4000
    panorama, small = large.fit([(12000, 1000), (280, 280)], room_tokens=3000)
    assert panorama.use.tokens + small.use.tokens <= 3000
    assert small.use.used == (280, 280)


def test_tiles_can_be_switched_off_by_the_bundle() -> None:
    whole = PackedGeometry({**SECTION, "max_tiles": 1})
    (view,) = whole.fit([(1200, 300)])
    assert (view.use.tiles, view.use.thumbnail, view.tiling) == (1, None, None)
    assert tiling((1200, 300), replace(VISION, max_tiles=1), VISION.max_pixels, 1) is None
    assert whole.enough_pixels < GEOMETRY.enough_pixels
