"""The rule by which a picture's visual tokens are kept: plain tensor operations, so that a graph can hold it and a
training can use it.

A block is the square of patches that becomes one visual token. Letters: n blocks of all pictures, E width, M blocks
kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CELLS_FROM = (16, 36, 64)
"""From so many tokens on, each of 2 x 2, 3 x 3, 4 x 4 cells of a picture is sure of one: a quarter of them at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """``index`` int64 ``[M]``, ascending: the blocks kept, counted through all pictures. ``goes`` int64 ``[n]``: which
    of them stands for each block. ``count`` f32 ``[M]``: how many each stands for, itself among them."""

    index: Tensor
    goes: Tensor
    count: Tensor


def choose(states_nE: Tensor, places_n2: Tensor, picture_n: Tensor, wanted_n: Tensor) -> Kept:
    """Keep of every picture the first ``wanted`` blocks in an order of its own.

    ``places`` are (row, column) of the blocks in their pictures, ``wanted`` the number for the picture of each block.

    The order: first the most telling block of each of the picture's cells, so that a small defect anywhere survives
    (``CELLS_FROM`` says how many cells); then the others. A block tells as much as its distance to whatever is more
    salient than it and most like it, salience being the distance from the mean of the picture: the first step of
    visiting the farthest point next (Gonzalez 1985, "Clustering to minimize the maximum intercluster distance", takes
    all steps one after the other, which no graph does fast). A block that is left out goes to the kept one of its
    picture that is nearest.

    Every comparison is within one picture, so that nothing depends on what else is in the batch.
    """
    same = picture_n[:, None] == picture_n[None]
    order = torch.arange(picture_n.shape[0])
    earlier = order[None] < order[:, None]
    salience, apart = _looks(states_nE, same)
    before = same & _above(salience, earlier)
    told = torch.where(before, apart, torch.finfo(apart.dtype).max).amin(dim=1)
    better = same & _above(told, earlier)

    cell = _cell(places_n2, same, wanted_n)
    winner = ~(better & (cell[:, None] == cell[None])).any(dim=1)
    ahead = (better & (winner[:, None] == winner[None])) | (same & winner[None] & ~winner[:, None])
    return assigned(ahead.sum(dim=1) < wanted_n, -apart, same)


def assigned(kept_n: Tensor, near_nn: Tensor, same_nn: Tensor) -> Kept:
    """What is kept, and which of it stands for each block: itself, or the kept one of its picture most like it."""
    index = kept_n.nonzero()[:, 0]
    nearest = (
        torch.where(same_nn & kept_n[None], near_nn, torch.finfo(near_nn.dtype).min)
        .index_select(1, index)
        .argmax(dim=1)
    )
    goes = torch.where(kept_n, kept_n.long().cumsum(0) - 1, nearest)
    count = (goes[None] == torch.arange(index.shape[0])[:, None]).to(near_nn.dtype).sum(dim=1)
    return Kept(index, goes, count)


def _cell(places_n2: Tensor, same_nn: Tensor, wanted_n: Tensor) -> Tensor:
    """The number of each block's cell within its picture: int64 [n]."""
    side = 1 + torch.stack([wanted_n >= least for least in CELLS_FROM]).sum(dim=0)
    extent = torch.where(same_nn[:, :, None], places_n2[None], 0).amax(dim=1) + 1
    cell = places_n2 * side[:, None] // extent
    return cell[:, 0] * side + cell[:, 1]


def _looks(states_nE: Tensor, same_nn: Tensor) -> tuple[Tensor, Tensor]:
    """How far each block is from the mean of its picture, squared [n], and two from one another, squared [n, n]."""
    weight = same_nn.to(states_nE.dtype)
    centred = states_nE - weight @ states_nE / weight.sum(dim=1, keepdim=True)
    square = centred.square().sum(dim=-1)
    apart = square[:, None] + square[None] - 2 * (centred @ centred.t())
    return square, apart.clamp(min=0.0)


def _above(value_n: Tensor, earlier_nn: Tensor) -> Tensor:
    """bool [n, n]: whether column comes before row when sorted by falling value, the earlier first among equals."""
    return (value_n[None] > value_n[:, None]) | ((value_n[None] == value_n[:, None]) & earlier_nn)
