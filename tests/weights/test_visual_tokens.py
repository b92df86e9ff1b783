"""The rule by which visual tokens are kept: every part of a picture is seen, and no other picture matters."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from foveola.lower import selection_reference  # noqa: E402
from foveola.weights.visual_tokens import Kept, choose  # noqa: E402

pytestmark = pytest.mark.torch
Grid = tuple[int, int]


def places(grid: Grid) -> Any:
    return torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1]))


def states(grid: Grid, seed: int = 0) -> Any:
    return torch.randn(grid[0] * grid[1], 12, generator=torch.Generator().manual_seed(seed))


def one(look: Any, grid: Grid, keep: int) -> Kept:
    picture = torch.zeros(len(look), dtype=torch.long)
    return choose(look, places(grid), picture, torch.full_like(picture, keep))


@pytest.mark.parametrize(
    ("grid", "keep", "side"), [((16, 16), 64, 4), ((5, 20), 64, 4), ((7, 9), 36, 3), ((4, 6), 16, 2)]
)
def test_every_cell_of_the_frame_keeps_a_token(grid: Grid, keep: int, side: int) -> None:
    """All that is telling lies in one corner, and still every cell keeps something."""
    look = 0.01 * states(grid)
    look[: keep // 2] = states(grid, seed=1)[: keep // 2]
    kept = one(look, grid, keep)
    cells = {(r * side // grid[0], c * side // grid[1]) for r in range(grid[0]) for c in range(grid[1])}
    assert {(int(r) * side // grid[0], int(c) * side // grid[1]) for r, c in places(grid)[kept.index]} == cells


def test_few_tokens_are_not_spent_on_cells() -> None:
    look = 0.01 * states((6, 6))
    look[:12] = states((6, 6), seed=1)[:12]
    assert one(look, (6, 6), 12).index.tolist() == list(range(12))


def test_the_one_token_that_differs_is_the_first_to_be_kept() -> None:
    plain = torch.ones(64, 12) + 0.01 * states((8, 8))
    for defect in (0, 27, 63):
        look = plain.clone()
        look[defect, :6] += 5
        assert one(look, (8, 8), 1).index.tolist() == [defect]


def test_all_that_are_alike_are_told_once_before_any_is_told_twice() -> None:
    look = torch.zeros(16, 12)
    look[:8, 0] = 1  # eight alike
    look[8, 1], look[9, 2] = 0.7, 0.7
    kept = one(look, (1, 16), 4)
    assert {8, 9} <= set(kept.index.tolist())


@pytest.mark.parametrize("grid", [(1, 1), (4, 4), (5, 7), (8, 8)])
@pytest.mark.parametrize("keep", [1, 3, 16, 36, 999])
def test_the_rule_is_that_of_the_plain_loops(grid: Grid, keep: int) -> None:
    look = states(grid, seed=keep)
    kept, wanted = one(look, grid, keep), selection_reference.choose(look, grid, keep)
    assert kept.index.tolist() == wanted.kept
    assert kept.count.tolist() == wanted.counts


def test_everyone_is_stood_for_and_who_is_kept_stands_for_himself() -> None:
    kept = one(states((6, 6)), (6, 6), 10)
    assert len(kept.index) == 10
    assert float(kept.count.sum()) == 36
    assert kept.goes[kept.index].tolist() == list(range(10))
    assert torch.bincount(kept.goes).tolist() == kept.count.long().tolist()


def test_whoever_is_left_out_goes_to_the_one_most_like_it() -> None:
    look = torch.zeros(4, 12)
    look[0, 0], look[1, 0], look[2, 1], look[3, 1] = 3.0, 2.0, 3.1, 2.2
    kept = one(look, (1, 4), 2)
    assert kept.index.tolist() == [0, 2]
    assert kept.goes.tolist() == [0, 0, 1, 1]


def test_a_picture_keeps_the_same_whatever_is_beside_it() -> None:
    grids = [(4, 4), (8, 8), (3, 5)]
    looks = [states(grid, seed) for seed, grid in enumerate(grids)]
    alone = [one(look, grid, keep) for look, grid, keep in zip(looks, grids, (5, 20, 4), strict=True)]
    picture = torch.repeat_interleave(torch.arange(3), torch.tensor([len(look) for look in looks]))
    together = choose(
        torch.cat(looks), torch.cat([places(grid) for grid in grids]), picture, torch.tensor([5, 20, 4])[picture]
    )
    starts = (0, 16, 80)
    assert together.index.tolist() == [
        start + block for start, kept in zip(starts, alone, strict=True) for block in kept.index.tolist()
    ]
    assert together.count.tolist() == [count for kept in alone for count in kept.count.tolist()]
