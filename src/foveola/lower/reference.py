"""What the model itself says: transformers' own modules, run on inputs made up for a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.vision_utils import get_vision_position_ids

from foveola.family import Family
from foveola.family.base import DecoderShape

Grid = tuple[int, int]
"""Rows and columns of patches of one picture."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Inputs of the vision graph for some pictures, and the features [M, H] that the model makes of them."""

    pixel_values: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    features: Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """A text of n tokens in one pass of the model, from which every way to cut it into chunks follows.

    embeds [n, H]; positions [axes, n] or [n]; logits [n, V]; evidence [n, n] (mean over heads of the attention of
    each position); cache: keys and values of every layer in turn, [G, n, D].
    """

    embeds: Tensor
    positions: Tensor
    logits: Tensor
    evidence: Tensor
    cache: tuple[Tensor, ...]

    def __len__(self) -> int:
        return int(self.embeds.shape[0])


@torch.no_grad()
def pictures(model: nn.Module, family: Family, grids: Sequence[Grid], merge: int, seed: int) -> Pictures:
    """Run the model's vision tower on random pictures of these sizes, as still pictures: equal frames."""
    return _VISION[family.geometry](model, family, grids, merge, seed)


def _packed_pictures(model: nn.Module, family: Family, grids: Sequence[Grid], merge: int, seed: int) -> Pictures:
    tower: Any = model.get_submodule(family.parts.vision)
    kernel = model.get_submodule(f"{family.parts.vision}.{family.tower.patch}").weight
    assert isinstance(kernel, Tensor)
    channels, frames, size = int(kernel.shape[1]), int(kernel.shape[2]), int(kernel.shape[3])
    total = sum(rows * columns for rows, columns in grids)
    pixels = torch.randn(total, channels, size * size, generator=torch.Generator().manual_seed(seed))
    every_frame = pixels[:, :, None].expand(-1, -1, frames, -1).reshape(total, -1)
    thw = torch.tensor([[1, rows, columns] for rows, columns in grids])
    return Pictures(
        pixel_values=pixels.flatten(1),
        position_ids=get_vision_position_ids(thw, merge),
        segment_ids=torch.repeat_interleave(torch.arange(len(grids)), thw[:, 1] * thw[:, 2]),
        features=tower(every_frame, grid_thw=thw).pooler_output,
    )


_VISION: dict[str, Callable[[nn.Module, Family, Sequence[Grid], int, int], Pictures]] = {"qwen2_vl": _packed_pictures}


@torch.no_grad()
def row(model: nn.Module, family: Family, shape: DecoderShape, length: int, evidence_layer: int, seed: int) -> Row:
    """Run the model's decoder on a random text, in which some tokens stand on a grid as a picture's do."""
    decoder: Any = model.get_submodule(family.parts.decoder)
    embedding = model.get_submodule(family.parts.embedding)
    head = model.get_submodule(family.parts.head)
    ids = torch.randint(shape.vocabulary, (1, length), generator=torch.Generator().manual_seed(seed))
    embeds: Tensor = embedding(ids)
    positions = _positions(length, 1 + max(shape.rotary_axes) if shape.rotary_axes else 0)
    out = decoder(
        inputs_embeds=embeds,
        position_ids=positions.unsqueeze(-2),
        attention_mask=torch.ones(1, length, dtype=torch.long),
        cache=DynamicCache(),
        use_cache=True,
        output_attentions=True,
    )
    cache = [part[0] for layer in out.cache.layers for part in (layer.keys, layer.values)]
    return Row(
        embeds=embeds[0],
        positions=positions,
        logits=head(out.last_hidden_state)[0],
        evidence=out.attentions[evidence_layer][0].mean(dim=0),
        cache=tuple(cache),
    )


def _positions(length: int, axes: int) -> Tensor:
    """The first half counts up; the second is a picture of three columns (only where there are axes for it)."""
    count = torch.arange(length)
    if not axes:
        return count
    start = length // 2
    inside = (count - start).clamp(min=0)
    base = count.clamp(max=start)
    spread = [base, base + inside // 3, base + inside % 3]
    return torch.stack(spread[:axes])
