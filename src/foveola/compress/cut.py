"""Taking units out of a model: what is kept of every layer, the repair of what reads it, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from foveola.compress.repair import Moments, output_error, repaired
from foveola.compress.tiles import Product, Tile, Utilisation, model_utilisation
from foveola.compress.units import UnitGroup, linear, narrow
from foveola.compress.widths import choices, select
from foveola.exchange import Invalid
from foveola.family import Family
from foveola.family.base import Config
from foveola.weights.widths import set_heads

Allocation = Literal["dp", "uniform"]


@dataclass(frozen=True, slots=True)
class Costs:
    """What ``units`` of a group cost together: ``fixed`` once, and a table count -> cost where it was measured.

    Without a table every unit costs the same, ``per_unit`` (weights of it: bytes and MACs are in proportion).
    """

    per_unit: float
    table: Mapping[int, float] | None = None

    def of(self, units: int) -> float:
        """The cost of keeping ``units``."""
        return self.per_unit * units if self.table is None else self.table[units]


def unit_weights(model: nn.Module, group: UnitGroup) -> int:
    """Weights that one unit has, in its producers and its consumer."""
    produced = sum(rows.shape[1] * linear(model, path).in_features for path, rows in group.producers.items())
    return produced + group.width * linear(model, group.consumer).out_features


def decide(
    model: nn.Module,
    groups: Sequence[UnitGroup],
    scores: Mapping[str, Tensor],
    share: float,
    channels: int,
    costs: Mapping[str, Costs],
    allocation: Allocation = "dp",
) -> dict[str, Tensor]:
    """Group -> indices int64 of the units that stay, sorted, when ``share`` of the cost is to go.

    Consumers keep multiples of ``channels``. ``dp`` lets the layers compete under one budget; ``uniform`` takes the
    same share of each, rounded to tiles. Raises ``Invalid`` for a share that leaves nothing.
    """
    if not 0 <= share < 1:
        raise Invalid(f"share is {share:g}; expected 0 to below 1, the part of the cost that goes.", field="share")
    tiles = {group.name: group.units_per_tile(channels) for group in groups}
    if allocation == "uniform":
        counts = {}
        for group in groups:
            tile = tiles[group.name]
            counts[group.name] = min(group.count, max(tile, round(group.count * (1 - share) / tile) * tile))
    else:
        layers = {
            group.name: choices(
                scores[group.name].tolist(),
                tiles[group.name],
                {n: costs[group.name].of(n) for n in _counts(group.count, tiles[group.name])},
            )
            for group in groups
        }
        whole = sum(costs[group.name].of(group.count) for group in groups)
        counts = dict(select(layers, whole * (1 - share)).units)
    return {group.name: scores[group.name].topk(counts[group.name]).indices.sort().values for group in groups}


def _counts(units: int, tile: int) -> list[int]:
    return sorted({*range(tile, units, tile), units})


@dataclass(frozen=True, slots=True)
class CutLayer:
    """What became of one group: units before and after, and the consumer's relative output error on the calibration
    data without and with repair (measured)."""

    name: str
    before: int
    after: int
    error_cut: float
    error_repaired: float


@torch.no_grad()
def cut(
    model: nn.Module,
    family: Family,
    config: Config,
    groups: Sequence[UnitGroup],
    keep: Mapping[str, Tensor],
    moments: Mapping[str, Moments] | None,
    *,
    ridge: float = 0.01,
) -> list[CutLayer]:
    """Leave only ``keep`` in ``model``, in place. With ``moments``, the consumers are repaired in closed form."""
    layers = []
    for group in groups:
        kept = keep[group.name]
        before, after = 0.0, 0.0
        weight: Tensor | None = None
        if moments is not None and group.name in moments and len(kept) < group.count:
            consumer = linear(model, group.consumer)
            columns = group.columns[kept].flatten()
            has_bias = consumer.bias is not None
            known = moments[group.name]
            weight, shift = repaired(consumer.weight, known, columns, ridge=ridge, into_bias=has_bias)
            before = output_error(consumer.weight, known, columns, consumer.weight[:, columns])
            after = output_error(consumer.weight, known, columns, weight, shift if has_bias else None)
            if has_bias:
                consumer.bias.add_(shift)
        if len(kept) < group.count:
            narrow(model, group, kept, weight)
        layers.append(CutLayer(group.name, group.count, len(kept), before, after))
    set_heads(model, family, config)
    return layers


def products(model: nn.Module, groups: Sequence[UnitGroup], rows: Mapping[str, int]) -> list[Product]:
    """The products of the layers that have units, as wide as they are now; ``rows`` gives M for each half."""
    paths = {path: group.half for group in groups for path in (*group.producers, group.consumer)}
    found = []
    for path, half in paths.items():
        layer = linear(model, path)
        found.append(Product(path, rows[half], layer.in_features, layer.out_features))
    return found


def utilised(model: nn.Module, groups: Sequence[UnitGroup], rows: Mapping[str, int], tile: Tile) -> Utilisation:
    """Predicted utilisation of the chip by these layers."""
    return model_utilisation(products(model, groups, rows), tile)
