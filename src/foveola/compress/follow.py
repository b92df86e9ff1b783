"""What a set of packed matrices does to a model, block by block: predicted, certified, and measured on one example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foveola.compress.certificate import Error, propagate
from foveola.compress.chain import links, measured, record
from foveola.compress.example import Example
from foveola.compress.prefetch import Engine, Load, Schedule, schedule
from foveola.family import Family
from foveola.weights.packed import Packed


@torch.no_grad()
def follow(
    model: nn.Module,
    family: Family,
    example: Example,
    packed: Mapping[str, Packed],
    told: Callable[[str, int], None] = lambda path, done: None,
) -> list[Error]:
    """The relative error after every block: certified bound, expectation, and what the packed model really has.

    ``model`` holds the exact weights, before and after. Raises ``Unsupported`` for families whose errors cannot be
    followed.
    """
    recorded = record(model, family, example)
    rounded = {path: one.dequantised() for path, one in packed.items()}
    chain = propagate(list(links(recorded, rounded, told=told)))
    exact = _exchange(model, rounded)
    found = measured(recorded, record(model, family, example))
    _exchange(model, exact)
    return [Error(one.block, one.bound, one.expected, found[one.block]) for one in chain]


def _exchange(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put ``weights`` into the layers; those that were there before."""
    before = {}
    for path, weight in weights.items():
        module: Any = model.get_submodule(path)
        before[path] = module.weight.detach()
        module.weight = nn.Parameter(weight, requires_grad=False)
    return before


def errors_json(errors: Sequence[Error]) -> list[dict[str, Any]]:
    """As data for the record of a step and for the report."""
    return [
        {
            "block": one.block,
            "bound": one.bound,
            "expected": one.expected,
            "measured": one.measured,
            "tightness": one.tightness,
        }
        for one in errors
    ]


@dataclass(frozen=True, slots=True)
class Dma:
    """A chip with DMA engines, for ``prefetch.json``: its fast memory in bytes, bytes and multiplications per
    microsecond, transfers at once, and how many rows a layer multiplies. All of it is the user's to know."""

    room_bytes: int
    bytes_per_us: float
    macs_per_us: float
    channels: int = 1
    rows: int = 1


def prefetch_plan(packed: Mapping[str, Packed], dma: Dma) -> Schedule:
    """The schedule for the packed matrices in the order of the model (modelled)."""
    loads = [
        Load(path, str(one.format), one.nbytes, dma.rows * one.outer * one.inner / dma.macs_per_us)
        for path, one in packed.items()
    ]
    return schedule(loads, Engine(dma.room_bytes, dma.bytes_per_us, dma.channels))
