from __future__ import annotations

import numpy as np
import pytest

from foveola.compress.tiles import (
    CHIPS,
    Product,
    Tile,
    block_mask,
    chip_of,
    filled,
    follows_pattern,
    keep_pattern,
    model_utilisation,
    skip_efficiency,
    skip_share,
    utilisation,
)
from foveola.exchange import Invalid


def test_channels_of_the_ascend_engine() -> None:
    chip = chip_of("ascend-910b")
    assert [chip.channels(precision) for precision in ("fp16", "int8", "int4")] == [16, 32, 64]
    assert chip.tile("int8") == Tile(rows=16, inner=32, outer=16)


def test_every_chip_tells_where_its_numbers_are_from() -> None:
    assert {"ascend-910b", "cambricon-mlu", "edge-tpu", "nvidia-2:4", "cpu-avx2"} <= set(CHIPS)
    for chip in CHIPS.values():
        assert chip.source
        assert all(min(tile.rows, tile.inner, tile.outer) >= 1 for tile in chip.tiles.values())


def test_unknown_names_are_told_with_those_that_are_known() -> None:
    with pytest.raises(Invalid, match="the chip is 'abacus'; known are ascend-910b, .*Choose one"):
        chip_of("abacus")
    with pytest.raises(Invalid, match="precision is 'int2'; edge-tpu multiplies in int8"):
        chip_of("edge-tpu").tile("int2")


def test_utilisation_of_shapes_worked_out_by_hand() -> None:
    cube = Tile(16, 16, 16)
    # 577 rows fill 37 tiles of 16 but for 15 rows; 1024 and 4096 fill theirs
    assert utilisation(Product("a", 577, 1024, 4096), cube) == pytest.approx(577 / 592)
    assert utilisation(Product("b", 128, 100, 100), cube) == pytest.approx((100 / 112) ** 2)
    assert filled(0, 16) == 1.0


def test_the_whole_is_weighted_by_work_and_never_above_one() -> None:
    tile = Tile(1, 1, 16)
    products = [Product("large", 64, 64, 64, times=10), Product("odd", 64, 64, 17)]
    found = model_utilisation(products, tile)
    work = [64 * 64 * 64 * 10, 64 * 64 * 17]
    assert found.layers == {"large": 1.0, "odd": 17 / 32}
    assert found.whole == pytest.approx(sum(work) / (work[0] + 64 * 64 * 32))
    assert found.channels == pytest.approx(found.whole)
    assert model_utilisation([], tile).whole == 1.0


def test_scattered_blocks_are_hardly_ever_skipped() -> None:
    rng = np.random.default_rng(0)
    kept = rng.random((128, 128)) >= 0.9
    weight = np.kron(kept, np.ones((4, 4)))
    assert skip_share(weight, (4, 4)) == pytest.approx(0.9, abs=0.01)
    assert skip_share(weight, (16, 16)) == pytest.approx(0.9**16, abs=0.03)
    assert skip_efficiency(weight, (16, 16)) == pytest.approx(0.9**15, abs=0.05)
    assert skip_efficiency(np.ones((8, 8)), (16, 16)) == 1.0


def test_block_mask_covers_an_edge_that_is_no_whole_block() -> None:
    weight = np.zeros((5, 9))
    weight[4, 8] = 1
    assert block_mask(weight, (4, 4)).tolist() == [[False, False, False], [False, False, True]]


def test_two_of_four_keeps_the_larger_two() -> None:
    importance = np.array([[1.0, 4.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0]])
    mask = keep_pattern(importance, (2, 4))
    assert mask.tolist() == [[False, True, True, False, True, True, False, False]]
    assert follows_pattern(mask.astype(float), (2, 4))
    assert not follows_pattern(np.ones((1, 8)), (2, 4))
    assert not follows_pattern(np.zeros((1, 6)), (2, 4))
    with pytest.raises(Invalid, match="a row of 6 weights has no groups of 4; pad it"):
        keep_pattern(np.ones((1, 6)), (2, 4))
