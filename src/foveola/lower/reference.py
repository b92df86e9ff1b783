"""What the model itself says: transformers' own modules, run on inputs made up for a comparison."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Inputs of the vision graph for some pictures in packed patches, and the features [M, E] that the model makes.

    ``every_frame`` are the patches as the model takes them, each frame of the still picture; ``sizes`` [N, 2] the rows
    and columns of each patch's picture.
    """

    pixel_values: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    features: Tensor
    every_frame: Tensor
    sizes: Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """A text of n tokens in one pass of the model, from which every way to cut it into chunks follows.

    embeds [n, E]; positions [axes, n]; logits [n, V]; evidence [n, n] (mean over heads of the attention of
    each position); cache: keys and values of every layer in turn, [G, n, D]; bias [n]: what is added to the attention
    to each token.
    """

    embeds: Tensor
    positions: Tensor
    logits: Tensor
    evidence: Tensor
    cache: tuple[Tensor, ...]
    bias: Tensor

    def __len__(self) -> int:
        return int(self.embeds.shape[0])


@torch.no_grad()
def pictures(model: nn.Module, family: Family, grids: Sequence[Grid], merge: int, seed: int) -> Pictures:
    """Run the model's vision tower on random pictures of these sizes, as still pictures: equal frames."""
    tower: Any = model.get_submodule(family.parts.vision)
    kernel = model.get_submodule(f"{family.parts.vision}.{family.tower.patch}").weight
    assert isinstance(kernel, Tensor)
    channels, frames, size = int(kernel.shape[1]), int(kernel.shape[2]), int(kernel.shape[3])
    total = sum(rows * columns for rows, columns in grids)
    pixels = torch.randn(total, channels, size * size, generator=torch.Generator().manual_seed(seed))
    every_frame = pixels[:, :, None].expand(-1, -1, frames, -1).reshape(total, -1)
    thw = torch.tensor([[1, rows, columns] for rows, columns in grids])
    picture = torch.repeat_interleave(torch.arange(len(grids)), thw[:, 1] * thw[:, 2])
    out = tower(every_frame, grid_thw=thw)
    return Pictures(
        pixel_values=pixels.flatten(1),
        position_ids=get_vision_position_ids(thw, merge),
        segment_ids=picture,
        features=torch.cat([out.pooler_output, *(getattr(out, "deepstack_features", None) or ())], dim=-1),
        every_frame=every_frame,
        sizes=thw[picture, 1:],
    )


@torch.no_grad()
def row(
    model: nn.Module,
    family: Family,
    shape: DecoderShape,
    length: int,
    evidence_layer: int | None,
    seed: int,
    *,
    weighs_keys: bool = False,
) -> Row:
    """Run the model's decoder on a random text, in which some tokens stand on a grid as a picture's do.

    With ``weighs_keys`` each of those counts as one, two or three.
    """
    decoder: Any = model.get_submodule(family.parts.decoder)
    embedding = model.get_submodule(family.parts.embedding)
    head = model.get_submodule(family.parts.head)
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(shape.vocabulary, (1, length), generator=random)
    embeds: Tensor = embedding(ids)
    positions = _positions(length, shape.axes)
    deep, others = _deepstack(embeds, shape.deepstack, random)
    several = (torch.arange(length) >= length // 2) * (torch.arange(length) % 3)
    bias = (1 + several).float().log() if weighs_keys else torch.zeros(length)
    mask = torch.ones(1, length, dtype=torch.long)
    if weighs_keys:
        mask = (torch.full((length, length), torch.finfo(torch.float32).min).triu(1) + bias)[None, None]
    out = decoder(
        inputs_embeds=embeds,
        position_ids=positions.unsqueeze(-2) if shape.axes > 1 else positions,
        attention_mask=mask,
        cache=DynamicCache(),
        use_cache=True,
        output_attentions=True,
        **others,
    )
    cache = [part[0] for layer in out.cache.layers for part in (layer.keys, layer.values)]
    return Row(
        embeds=torch.cat([embeds, *deep], dim=-1)[0],
        positions=positions,
        logits=head(out.last_hidden_state)[0],
        evidence=out.attentions[evidence_layer or 0][0].mean(dim=0),
        cache=tuple(cache),
        bias=bias,
    )


def _deepstack(embeds: Tensor, count: int, random: torch.Generator) -> tuple[list[Tensor], dict[str, Any]]:
    """Random features for the second half of the text: as wide rows, and as the model takes them."""
    if not count:
        return [], {}
    visual = torch.arange(embeds.shape[1]) >= embeds.shape[1] // 2
    deep = [torch.randn(embeds.shape, generator=random) * visual[:, None] for _ in range(count)]
    return deep, {"visual_pos_masks": visual[None], "deepstack_visual_embeds": [one[0, visual] for one in deep]}


def _positions(length: int, axes: int) -> Tensor:
    """[axes, n]. The first half counts up; the second is a picture of three columns (only where axes tell)."""
    count = torch.arange(length)
    if axes == 1:
        return count[None]
    start = length // 2
    inside = (count - start).clamp(min=0)
    base = count.clamp(max=start)
    return torch.stack([base, base + inside // 3, base + inside % 3][:axes])
