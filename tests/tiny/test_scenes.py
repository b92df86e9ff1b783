"""Generated pictures hold what they are said to hold."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.tiny import scenes
from foveola.tiny.scenes import Defect


@pytest.mark.parametrize("size", [(112, 112), (84, 200), (224, 140)])
def test_a_surface_is_clean_and_in_range(size):
    for seed in range(12):
        grey = scenes.surface(np.random.default_rng(seed), *size)
        assert grey.shape == size
        assert grey.dtype == np.float32
        assert grey.min() >= 4
        assert grey.max() <= 251


def test_the_same_seed_gives_the_same_scene():
    a, b = (scenes.scene(np.random.default_rng(5), 112, 112) for _ in range(2))
    assert np.array_equal(a.pixels, b.pixels)
    assert a.defects == b.defects


def test_boxes_lie_inside_and_hold_the_change():
    seen = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        flat = (np.full((140, 140), 128, np.float32), "machined part")
        one = scenes.scene(rng, 140, 140, background=flat, counts=(0, 1))
        for d in one.defects:
            x1, y1, x2, y2 = (round(v * 140) for v in d.box)
            assert 0 <= x1 < x2 <= 140
            assert 0 <= y1 < y2 <= 140
            changed = np.abs(one.pixels.astype(float) - one.pixels[0, 0]).max(2) > 25
            if (one.pixels[0, 0] == one.pixels[-1, -1]).all() and changed.any():
                seen += 1
                rows, columns = np.nonzero(changed.any(1))[0], np.nonzero(changed.any(0))[0]
                assert rows[0] >= y1 - 2
                assert rows[-1] <= y2 + 2
                assert columns[0] >= x1 - 2
                assert columns[-1] <= x2 + 2
    assert seen > 20


def test_defects_do_not_touch():
    for seed in range(30):
        found = scenes.scene(np.random.default_rng(seed), 224, 224, counts=(0, 0, 0, 0, 1)).defects
        for i, a in enumerate(found):
            for b in found[i + 1 :]:
                apart = a.box[2] < b.box[0] or b.box[2] < a.box[0] or a.box[3] < b.box[1] or b.box[3] < a.box[1]
                assert apart


def test_counts_decide_how_many():
    assert all(not scenes.scene(np.random.default_rng(s), 112, 112, counts=(1,)).defects for s in range(5))


@pytest.mark.parametrize(
    ("box", "cell"), [((0, 0, 0.2, 0.2), 0), ((0.4, 0.4, 0.6, 0.6), 4), ((0.9, 0.5, 1, 0.52), 5), ((0.7, 0.9, 1, 1), 8)]
)
def test_the_cell_is_that_of_the_middle(box, cell):
    assert Defect("pit", box).cell == cell


def test_a_cutout_is_pasted_where_its_box_says():
    patch = np.full((40, 40), 250, np.float32)
    dark = (np.full((140, 140), 20, np.float32), "magnetic tile")
    found = 0
    for seed in range(40):
        one = scenes.scene(
            np.random.default_rng(seed), 140, 140, background=dark, cutouts=[("blowhole", patch)], counts=(0, 1)
        )
        if one.names == ("blowhole",):
            found += 1
            assert one.material == "magnetic tile"
    assert found > 5
