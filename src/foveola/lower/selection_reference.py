"""What a vision graph with a selection has to give, said once more: plain loops around the model's own blocks.

Nothing is shared with ``selection.py`` but the rule that its docstrings state. That a patch counts as many is had by
repetition: it stands in the sequence as often as it stands for others, so that no bias is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foveola.family import Family
from foveola.lower.reference import Grid, Pictures


@dataclass(frozen=True, slots=True)
class Chosen:
    """Of one picture: the blocks kept, ascending, and how many each of them stands for."""

    kept: list[int]
    counts: list[int]


def choose(states: Tensor, grid: Grid, keep: int) -> Chosen:
    """``states`` [n, E] are the means of the blocks of one picture of ``grid`` = (rows, columns) blocks."""
    count = len(states)
    centred = states - states.mean(dim=0)
    salience = centred.norm(dim=1).tolist()
    away = torch.cdist(centred, centred).tolist()
    by_salience = sorted(range(count), key=lambda block: (-salience[block], block))
    gain = [0.0] * count
    for place, block in enumerate(by_salience):
        gain[block] = min((away[block][other] for other in by_salience[:place]), default=float("inf"))
    order = sorted(range(count), key=lambda block: (-gain[block], block))
    side = max(one for one in range(1, 5) if one == 1 or 4 * one * one <= keep)
    winners: dict[tuple[int, int], int] = {}
    for block in order:
        row, column = divmod(block, grid[1])
        winners.setdefault((row * side // grid[0], column * side // grid[1]), block)
    first = set(winners.values())
    kept = sorted(sorted(order, key=lambda block: block not in first)[:keep])
    counts = [1] * len(kept)
    for block in set(range(count)) - set(kept):
        counts[min(range(len(kept)), key=lambda place: (away[block][kept[place]], place))] += 1
    return Chosen(kept, counts)


@torch.no_grad()
def selected(
    model: nn.Module, family: Family, made: Pictures, grids: Sequence[Grid], *, merge: int, after: int, keep: int
) -> tuple[Tensor, list[int]]:
    """Features [M, H] and the visual tokens kept, counted through all pictures, each of which keeps ``keep``.

    ``grids`` are in patches, as for ``reference.pictures``, which made ``made``.
    """
    tower: Any = model.get_submodule(family.parts.vision)
    features, kept, before = [], [], 0
    for picture, grid in enumerate(grids):
        own = made.segment_ids == picture
        blocks = (grid[0] // merge, grid[1] // merge)
        states, chosen = _one(tower, made.every_frame[own], made.position_ids[own], blocks, merge, after, keep)
        features.append(states)
        kept += [before + block for block in chosen.kept]
        before += blocks[0] * blocks[1]
    return torch.cat(features), kept


def _one(
    tower: Any, pixels: Tensor, positions: Tensor, grid: Grid, merge: int, after: int, keep: int
) -> tuple[Tensor, Chosen]:
    x = tower.patch_embed(pixels)
    angles = tower.rotary_pos_emb(x, positions)
    for block in tower.blocks[:after]:
        x = _through(block, x, angles)
    quad = merge * merge
    blocks = x.view(-1, quad, x.shape[-1])
    chosen = choose(blocks.mean(dim=1), grid, keep)
    repeated = [place for place, times in enumerate(chosen.counts) for _ in range(times)]
    where = torch.tensor([chosen.kept[place] for place in repeated])
    x = blocks[where].flatten(0, 1)
    angles = tuple(part.view(-1, quad, part.shape[-1])[where].flatten(0, 1) for part in angles)
    for block in tower.blocks[after:]:
        x = _through(block, x, angles)
    firsts = [repeated.index(place) for place in range(len(chosen.kept))]
    features: Tensor = tower.merger(x)[firsts]
    return features, chosen


def _through(block: Any, x: Tensor, angles: tuple[Tensor, ...]) -> Tensor:
    length = x.shape[0]
    out: Tensor = block(x, cu_seqlens=torch.tensor([0, length]), max_seqlen=length, position_embeddings=angles)
    return out
