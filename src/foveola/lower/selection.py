"""Which visual tokens of a picture go on through the tower, and into the decoder: chosen inside the vision graph.

A block is the square of patches that becomes one visual token. After some blocks of the tower every picture keeps its
``keep`` most telling blocks, and each of them stands from there on for the left-out ones that are most like it; what
comes after costs less in tower and decoder alike. No training is needed, and nothing but the picture itself counts:
every comparison is within one picture, so that an answer never depends on what else is in the batch.

Letters: N patches of all pictures, E width, D head size, n blocks, M blocks kept, m side of a block in patches.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

CELLS = 4


class Kept(NamedTuple):
    """``index`` int64 ``[M]``, ascending: the blocks kept, counted through all pictures. ``count`` f32 ``[M]``: how
    many each stands for, itself among them."""

    index: Tensor
    count: Tensor


class Narrowed(NamedTuple):
    """What the tower goes on with: states ``[P, E]``, cosine and sine ``[1, P, D / 2]``, bias ``[1, 1, P, P]`` of the
    P patches of the blocks kept."""

    x: Tensor
    cos: Tensor
    sin: Tensor
    bias: Tensor
    kept: Kept


class Selector(nn.Module):
    """Keeps the first ``keep`` blocks of every picture in an order of its own.

    The order: first the most telling block of each of the picture's 4 x 4 cells, so that a small defect anywhere
    survives; then the others. A block tells as much as its *quality*, its rank by salience (the distance from the mean
    of its picture), times what no more salient block of the picture says already: the first step of a determinantal
    point process with kernel ``diag(q) S diag(q)``, the variance of a block given the one before it that is most like
    it (Chen et al. 2018, arXiv:1709.05135, take all steps one after the other, which no graph does fast).

    A block that is kept goes on unchanged, but attention counts it as many: the logarithm of the number is added to
    the attention to it (Bolya et al. 2023, arXiv:2210.09461, equation 3). Averaging the left-out blocks into it as well
    moved the answers four times as far (docs/decisions).
    """

    def __init__(self, after: int, merge_size: int, cells: int = CELLS) -> None:
        super().__init__()
        self.after = after
        self.side = merge_size
        self.cells = cells

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, segment_ids: Tensor, keep: Tensor
    ) -> Narrowed:
        """[N, E], twice [1, N, D / 2], [N, 2], [N], [N]: ``keep`` is the number for the picture of each patch."""
        kept = self.choose(x, position_ids, segment_ids, keep)
        quad = self.side**2
        patches = (kept.index[:, None] * quad + torch.arange(quad)).view(-1)
        picture = segment_ids.index_select(0, patches)
        weight = kept.count.log()[:, None].expand(-1, quad).reshape(-1)
        bias = torch.where(picture[:, None] == picture[None], weight[None], torch.finfo(x.dtype).min)[None, None]
        cos, sin = cos.index_select(1, patches), sin.index_select(1, patches)
        return Narrowed(x.index_select(0, patches), cos, sin, bias, kept)

    def choose(self, x: Tensor, position_ids: Tensor, segment_ids: Tensor, keep: Tensor) -> Kept:
        """[N, E], [N, 2], [N], [N] -> what is kept."""
        quad = self.side**2
        picture, wanted = segment_ids.view(-1, quad)[:, 0], keep.view(-1, quad)[:, 0]
        same = picture[:, None] == picture[None]
        order = torch.arange(picture.shape[0])
        earlier = order[None] < order[:, None]
        salience, alike = _looks(x.view(-1, quad, x.shape[-1]).mean(dim=1), same)
        before = same & _above(salience, earlier)
        quality = 1 - before.sum(dim=1).to(x.dtype) / same.sum(dim=1).to(x.dtype)
        told = torch.where(before, alike.square(), 0.0).amax(dim=1)
        better = same & _above(quality.square() * (1 - told).clamp(min=0.0), earlier)

        cell = self._cell(position_ids, quad, same)
        winner = ~(better & (cell[:, None] == cell[None])).any(dim=1)
        ahead = (better & (winner[:, None] == winner[None])) | (same & winner[None] & ~winner[:, None])
        kept = ahead.sum(dim=1) < wanted
        index = kept.nonzero()[:, 0]
        nearest = torch.where(same & kept[None], alike, -2.0).index_select(1, index).argmax(dim=1)
        goes = torch.where(kept, kept.long().cumsum(0) - 1, nearest)
        count = (goes[None] == torch.arange(index.shape[0])[:, None]).to(x.dtype).sum(dim=1)
        return Kept(index, count)

    def _cell(self, position_ids: Tensor, quad: int, same: Tensor) -> Tensor:
        """The number of each block's cell within its picture: int64 [n]."""
        corner = position_ids.view(-1, quad, 2)[:, 0] // self.side
        extent = torch.where(same[:, :, None], corner[None], 0).amax(dim=1) + 1
        place = corner * self.cells // extent
        return place[:, 0] * self.cells + place[:, 1]


def _looks(mean: Tensor, same: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks [n, E] -> how far each is from the mean of its picture [n], how alike two are seen from there [n, n]."""
    weight = same.to(mean.dtype)
    centred = mean - weight @ mean / weight.sum(dim=1, keepdim=True)
    direction = nn.functional.normalize(centred, dim=-1)
    return centred.norm(dim=-1), direction @ direction.t()


def _above(value: Tensor, earlier: Tensor) -> Tensor:
    """bool [n, n]: whether column comes before row when sorted by falling value, the earlier first among equals."""
    return (value[None] > value[:, None]) | ((value[None] == value[:, None]) & earlier)
