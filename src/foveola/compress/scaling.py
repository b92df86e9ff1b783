"""Activation-aware scales: columns that matter more are stretched before rounding and shrunk after it.

Lin et al. 2024, "AWQ: Activation-aware Weight Quantization" (arXiv 2306.00978), with the loss in closed form: for a
rounding error E of the weights and the second moments S of their input, the error of the output is tr(E S Eᵀ). No
activation is replayed during the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foveola.weights.formats import Format
from foveola.weights.packed import grid_of, in_blocks


@dataclass(frozen=True, slots=True)
class Reader:
    """One matrix [N, K] that reads the input, and how much each of its rows matters [N]."""

    weight: Tensor
    importance: Tensor
    form: Format


def rounded(weight_NK: Tensor, form: Format, shrink: Tensor | float = 1.0) -> Tensor:
    """The weights as round-to-nearest leaves them."""
    blocks = in_blocks(weight_NK, form.block)
    grid = grid_of(blocks, form.bits, shrink)
    return grid.values(grid.nearest(blocks)).flatten(1)[:, : weight_NK.shape[1]]


def weighted_error(error_NK: Tensor, moments_KK: Tensor, importance_N: Tensor) -> float:
    """Σ_r importance_r (E S Eᵀ)_rr."""
    return float((((error_NK @ moments_KK) * error_NK).sum(1) * importance_N).sum())


def search_scales(
    readers: Sequence[Reader],
    moments_KK: Tensor,
    magnitude_K: Tensor,
    channel_K: Tensor,
    *,
    ratios: int = 20,
    rows: int = 256,
    seed: int = 0,
) -> tuple[Tensor, float, float]:
    """The scale of every channel, and the error without and with it.

    ``magnitude_K`` is the mean of |x|; ``channel_K`` the channel of every column (columns that one row of the source
    feeds share theirs). Candidates are m^r and m^r / mean|W|^(1-r) for ``ratios`` values of r in [0, 1), normalised by
    the root of their extremes' product. At most ``rows`` rows of each matrix are looked at.
    """
    draw = torch.Generator().manual_seed(seed)
    looked = [_some(reader, rows, draw) for reader in readers]
    count = int(channel_K.max()) + 1
    activation = _per_channel(magnitude_K, channel_K, count)
    weight = _per_channel(_relative_magnitude(looked), channel_K, count)
    best = torch.ones(count)
    plain = least = _error(looked, best[channel_K], moments_KK)
    for index in range(ratios):
        ratio = index / ratios
        for divisor in (1.0, weight ** (1 - ratio) + 1e-4):
            scale = (activation**ratio / divisor).clamp(min=1e-4)
            scale = scale / (scale.max() * scale.min()).sqrt()
            error = _error(looked, scale[channel_K], moments_KK)
            if error < least:
                least, best = error, scale
    return best, plain, least


def _error(readers: Sequence[Reader], scale_K: Tensor, moments_KK: Tensor) -> float:
    total = 0.0
    for reader in readers:
        error = rounded(reader.weight * scale_K, reader.form) / scale_K - reader.weight
        total += weighted_error(error, moments_KK, reader.importance)
    return total


def _some(reader: Reader, rows: int, draw: torch.Generator) -> Reader:
    count = reader.weight.shape[0]
    if count <= rows:
        return reader
    chosen = torch.randperm(count, generator=draw)[:rows]
    return Reader(reader.weight[chosen], reader.importance[chosen], reader.form)


def _relative_magnitude(readers: Sequence[Reader]) -> Tensor:
    """Mean over rows of |W| against the largest of its block, [K]."""
    parts = []
    for reader in readers:
        blocks = in_blocks(reader.weight.abs(), reader.form.block)
        relative = blocks / blocks.amax(-1, keepdim=True).clamp(min=1e-12)
        parts.append(relative.flatten(1)[:, : reader.weight.shape[1]])
    return torch.cat(parts).mean(0)


def _per_channel(values_K: Tensor, channel_K: Tensor, count: int) -> Tensor:
    summed = torch.zeros(count).index_add(0, channel_K, values_K)
    return summed / torch.bincount(channel_K, minlength=count)
