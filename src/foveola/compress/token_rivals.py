"""What a rule for visual tokens has to beat: chance, an even grid, and pooling over it.

They are rules as ``selecting.Rule``, so that they stand at the same place of the tower, and whom they keep is
attended to as many in the same way; pooling is ``evenly`` with ``Selecting(..., blend=True)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveola.compress.selecting import Rule
from foveola.weights.visual_tokens import Kept, assigned


def by_chance(seed: int) -> Rule:
    """Any tokens; the same for the same seed and number of tokens. Left-out ones go to the kept one most like them."""

    def rule(states_nE: Tensor, places_n2: Tensor, keep: int) -> Kept:
        count = len(states_nE)
        drawn = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 100_003 + count))
        kept = torch.zeros(count, dtype=torch.bool)
        kept[drawn[:keep]] = True
        return assigned(kept, -torch.cdist(states_nE, states_nE), torch.ones(count, count, dtype=torch.bool))

    return rule


def evenly(states_nE: Tensor, places_n2: Tensor, keep: int) -> Kept:
    """The frame in as many equal cells as fit ``keep``; the token in the middle of each stands for all of it."""
    rows, columns = (int(extent) + 1 for extent in places_n2.amax(dim=0))
    down, across = _cells(rows, columns, keep)
    cell = (places_n2[:, 0] * down // rows) * across + places_n2[:, 1] * across // columns
    middle = torch.stack([_middle(cell == one, places_n2) for one in range(down * across)])
    index, place = middle.sort()
    goes = torch.empty_like(place)
    goes[place] = torch.arange(len(place))
    return Kept(index, goes[cell], torch.bincount(goes[cell], minlength=len(index)).to(states_nE.dtype))


def _middle(inside: Tensor, places_n2: Tensor) -> Tensor:
    own = inside.nonzero()[:, 0]
    away = (places_n2[own] - places_n2[own].double().mean(dim=0)).square().sum(dim=1)
    return own[away.argmin()]


def _cells(rows: int, columns: int, keep: int) -> tuple[int, int]:
    """As many cells as possible, of the frame's own shape where there is a choice."""
    splits = [(down, min(columns, keep // down)) for down in range(1, min(rows, keep) + 1)]
    return max(splits, key=lambda split: (split[0] * split[1], -abs(split[0] * columns - split[1] * rows)))
