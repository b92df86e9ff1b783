"""Clipping: a narrower range than the block's own rounds its many small weights finer, at the price of its largest."""

from __future__ import annotations

import torch
from torch import Tensor

from foveola.weights.packed import grid_of, in_blocks

RATIOS = tuple(1 - step / 20 for step in range(10))
"""1.0 down to 0.55."""
_ROWS = 512


def search_clip(weight_NK: Tensor, moments_KK: Tensor, bits: int, block: int) -> Tensor:
    """For every block [N, B] the ratio of ``RATIOS`` that errs least under the block's own part of the moments."""
    blocks = in_blocks(weight_NK, block)
    count = blocks.shape[1]
    padding = count * block - weight_NK.shape[1]
    wide = torch.nn.functional.pad(moments_KK, (0, padding, 0, padding)) if padding else moments_KK
    own_Bkk = torch.stack([wide[b * block : (b + 1) * block, b * block : (b + 1) * block] for b in range(count)])
    parts = blocks.split(_ROWS)  # type: ignore[no-untyped-call]
    return torch.cat([_best(part, own_Bkk, bits) for part in parts])


def _best(blocks_NBk: Tensor, moments_Bkk: Tensor, bits: int) -> Tensor:
    best = torch.ones(blocks_NBk.shape[:2])
    least = torch.full(blocks_NBk.shape[:2], torch.inf)
    for ratio in RATIOS:
        grid = grid_of(blocks_NBk, bits, ratio)
        error_BNk = (grid.values(grid.nearest(blocks_NBk)) - blocks_NBk).transpose(0, 1)
        loss = ((error_BNk @ moments_Bkk) * error_BNk).sum(-1).t()
        better = loss < least
        least = torch.where(better, loss, least)
        best = torch.where(better, ratio, best)
    return best
