"""Pictures one by one, and their names: nothing that the vision graph reads may be left out of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foveola.engine.pictures import one_by_one
from foveola.intake.geometry import Packed, VisionConfig, pack
from foveola.intake.image import Picture

VISION = VisionConfig(14, 2, 1, 28 * 28, 112 * 112, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "bicubic", 4096)


def picture(width: int, height: int, seed: int = 0) -> Picture:
    rgb = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    return Picture(rgb, (width, height), "PNG")


def test_each_picture_is_what_it_would_be_alone() -> None:
    pictures = [picture(56, 84), picture(84, 56, 1), picture(28, 28, 2)]
    apart = one_by_one(pack(pictures, VISION))
    alone = [one_by_one(pack([one], VISION))[0] for one in pictures]
    assert [one.name for one in apart] == [one.name for one in alone]
    for together, single in zip(apart, alone, strict=True):
        for name, array in single.packed.feeds().items():
            np.testing.assert_array_equal(together.packed.feeds()[name], array)
        assert together.packed.grids == single.packed.grids
        assert together.packed.images == single.packed.images
    assert one_by_one(None) == ()


def test_the_same_bytes_in_another_shape_are_another_picture() -> None:
    """30 x 100 and 100 x 30 pixels of the same bytes were taken for one another elsewhere (GHSA-c65p-x677-fgj6)."""
    data = np.random.default_rng(3).integers(0, 255, 56 * 112 * 3, np.uint8)
    names = {
        one_by_one(pack([Picture(data.reshape(height, width, 3), (width, height), "PNG")], VISION))[0].name
        for height, width in ((56, 112), (112, 56))
    }
    assert len(names) == 2


def test_one_pixel_the_preprocessing_and_further_inputs_count() -> None:
    original = picture(56, 56)
    changed = original.rgb.copy()
    changed[3, 3, 1] ^= 1
    darker = replace(VISION, image_mean=(0.4, 0.5, 0.5))
    base = pack([original], VISION)
    sized = replace(base, inputs=(*base.inputs, "sizes"), others={"sizes": np.zeros((16, 2), np.int64)})
    packed: list[Packed] = [
        base,
        pack([Picture(changed, (56, 56), "PNG")], VISION),
        pack([original], darker),
        sized,
        replace(sized, others={"sizes": np.ones((16, 2), np.int64)}),
    ]
    assert len({one_by_one(one)[0].name for one in packed}) == len(packed)
    assert one_by_one(pack([picture(56, 56)], VISION))[0].name == one_by_one(base)[0].name
