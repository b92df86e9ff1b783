"""A model of transformers that reads fewer visual tokens, for measuring and training; nothing is exported here.

Left-out tokens stay in the sequence, but nobody attends to them, and those kept are attended to as many: the same
numbers as if they had been taken out (``lower.selection`` does that), at the full price.

Letters: n visual tokens of the picture, M kept, E width of the tower, T tokens of the text with the picture in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.vision_utils import get_vision_position_ids

from foveola.exchange import Invalid, Unsupported
from foveola.family import Family
from foveola.weights.visual_tokens import Kept, choose

Rule = Callable[[Tensor, Tensor, int], Kept]
"""(states [n, E], (row, column) of each [n, 2], how many) -> what is kept."""
ATTENTION = "foveola_weighing"
_BIAS = "foveola_key_bias"


def telling(states_nE: Tensor, places_n2: Tensor, keep: int) -> Kept:
    """The rule of the product, ``weights.visual_tokens.choose``, for one picture."""
    one = torch.zeros(len(states_nE), dtype=torch.long)
    return choose(states_nE, places_n2, one, torch.full_like(one, keep))


class Selecting:
    """While it is entered, ``model`` keeps ``keep`` visual tokens behind ``after`` blocks of its tower.

    One picture at a time. ``kept`` is what was chosen last. With ``blend`` a kept token goes on as the mean of all that
    it stands for; ``seen`` is told what the tower gives: (features [n, H], kept).
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        *,
        after: int,
        keep: int,
        rule: Rule = telling,
        blend: bool = False,
        seen: Callable[[Tensor, Kept], None] | None = None,
    ) -> None:
        tower: Any = model.get_submodule(family.parts.vision)
        if family.geometry != "qwen2_vl":
            raise Unsupported(f"visual tokens are selected in towers of qwen2_vl, and this one is {family.geometry}'s.")
        self._blocks = list(tower.get_submodule(family.tower.blocks))
        if not 0 <= after <= len(self._blocks):
            raise Invalid(
                f"after is {after}; the tower has {len(self._blocks)} blocks, expected 0 to {len(self._blocks)}.",
                field="after",
            )
        self._place = [*self._blocks, tower.get_submodule(family.tower.merger_up.partition(".")[0])][after]
        self._model, self._tower = model, tower
        self._merge = int(tower.spatial_merge_size)
        self._looking = [block.get_submodule(family.tower.output.rpartition(".")[0]) for block in self._blocks[after:]]
        decoder = model.get_submodule(family.parts.decoder)
        layers = list(decoder.get_submodule(family.decoder.layers).children())
        self._reading = [layer.get_submodule(family.decoder.output.rpartition(".")[0]) for layer in layers]
        self._keep, self._rule, self._blend, self._seen = keep, rule, blend, seen
        self._hooks: list[Any] = []
        self._grid = torch.zeros(0)
        self._is_vision = torch.zeros(0)
        self.kept: Kept | None = None

    @contextmanager
    def reading(self, grid_thw: Tensor, is_vision: Tensor) -> Iterator[Selecting]:
        """For one forward pass of an example: ``grid_thw`` [1, 3] of its picture, ``is_vision`` bool [1, T]."""
        if len(grid_thw) != 1:
            raise Invalid(f"an example has {len(grid_thw)} pictures; visual tokens are selected for one at a time.")
        self._grid, self._is_vision = grid_thw, is_vision
        config = self._tower.config
        before = config._attn_implementation
        config._attn_implementation = ATTENTION
        self._hooks = [self._place.register_forward_pre_hook(self._select)]
        self._hooks += [one.register_forward_pre_hook(self._weigh_keys, with_kwargs=True) for one in self._reading]
        if self._seen is not None:
            self._hooks.append(self._tower.register_forward_hook(self._show))
        try:
            yield self
        finally:
            config._attn_implementation = before
            for hook in self._hooks:
                hook.remove()
            for module in self._looking:
                module.__dict__.pop(_BIAS, None)

    def _select(self, place: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        x: Tensor = arguments[0]
        quad = self._merge**2
        with torch.no_grad():
            places = get_vision_position_ids(self._grid, self._merge).view(-1, quad, 2)[:, 0] // self._merge
            self.kept = self._rule(x.view(-1, quad, x.shape[-1]).mean(dim=1), places, self._keep)
        bias = self._log_counts(x.dtype).repeat_interleave(quad)
        for module in self._looking:
            module.__dict__[_BIAS] = bias
        if not self._blend:
            return arguments
        together = x.new_zeros(len(self.kept.index), quad * x.shape[-1])
        together = together.index_add(0, self.kept.goes, x.view(-1, quad * x.shape[-1])) / self.kept.count[:, None]
        return (together[self.kept.goes].view_as(x), *arguments[1:])

    def _log_counts(self, dtype: torch.dtype) -> Tensor:
        """[n]: the logarithm of what each token stands for, and nothing gets through to one that is left out."""
        assert self.kept is not None
        bias = torch.full(self.kept.goes.shape, torch.finfo(dtype).min / 2, dtype=dtype)
        bias[self.kept.index] = self.kept.count.log()
        return bias

    def _weigh_keys(
        self, layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask: Tensor = named["attention_mask"]
        bias = torch.zeros(mask.shape[-1], dtype=mask.dtype)
        bias[self._is_vision[0]] = self._log_counts(mask.dtype)
        floor = torch.finfo(mask.dtype).min
        return arguments, named | {"attention_mask": (mask + bias).clamp(min=floor)}

    def _show(self, tower: nn.Module, arguments: tuple[Any, ...], out: Any) -> None:
        assert self.kept is not None and self._seen is not None
        self._seen(out.pooler_output, self.kept)


def _weighing(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, *, scaling: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Attention [B, heads, N, D] -> [B, N, heads, D], with the bias over keys that the module may have been given."""
    scores = query @ key.transpose(2, 3) * scaling
    bias = module.__dict__.get(_BIAS)
    if bias is not None:
        scores = scores + bias
    probabilities = scores.softmax(dim=-1)
    return (probabilities @ value).transpose(1, 2).contiguous(), probabilities


AttentionInterface.register(ATTENTION, _weighing)
