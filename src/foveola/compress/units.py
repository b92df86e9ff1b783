"""What can be taken out of a model in one piece: channels of an MLP, heads of a tower, whole groups of a decoder.

A unit is a set of rows of its producers and of columns of one consumer. Multiplying those columns' input by zero is
the same as taking the unit out, which is how units are gated, scored and removed without looking inside a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foveola.exchange import Invalid, Unsupported
from foveola.family import Family
from foveola.family.base import Config

HALVES = ("vision", "decoder")


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """The removable units of one layer.

    ``producers`` path -> rows int64 [units, r] of that matrix which belong to each unit; ``consumer`` path of the
    matrix that reads them, ``columns`` int64 [units, c] of it. ``kind`` is channels or heads.
    """

    name: str
    half: str
    kind: str
    producers: Mapping[str, Tensor]
    consumer: str
    columns: Tensor

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.columns.shape[0])

    @property
    def width(self) -> int:
        """Channels of one unit, as the consumer sees them."""
        return int(self.columns.shape[1])

    def units_per_tile(self, channels: int) -> int:
        """Units that are kept or removed together so that the consumer's channels stay multiples of ``channels``.

        A head that is no whole number of tiles cannot be split: then as many heads as make one.
        """
        together = 1
        while together * self.width % channels and together < self.count:
            together += 1
        return together

    def unit_of_column(self) -> Tensor:
        """For every column of the consumer the unit that it belongs to, int64 [K]."""
        owner = torch.empty(self.columns.numel(), dtype=torch.long)
        owner[self.columns.flatten()] = torch.arange(self.count).repeat_interleave(self.width)
        return owner


def unit_groups(
    model: nn.Module, family: Family, config: Config, halves: Sequence[str] = HALVES
) -> tuple[UnitGroup, ...]:
    """All units of the halves named, sizes taken from the weights. Raises ``Invalid`` for an unknown half."""
    unknown = sorted(set(halves) - set(HALVES))
    if unknown or not halves:
        came = repr(unknown[0]) if unknown else "nothing"
        raise Invalid(f"halves names {came}; expected {', '.join(HALVES)} or both.", field="halves")
    found: list[UnitGroup] = []
    if "vision" in halves and family.parts.vision:  # a model that reads text only has no tower
        found += _tower_groups(model, family, config)
    if "decoder" in halves:
        found += _decoder_groups(model, family, config)
    return tuple(found)


def _tower_groups(model: nn.Module, family: Family, config: Config) -> Iterator[UnitGroup]:
    names, head_dim = family.tower, family.tower_shape(config).head_dim
    root = f"{family.parts.vision}.{names.blocks}"
    for index in range(_children(model, root)):
        at = f"{root}.{index}.".__add__
        inner = _inner(model, at(names.output))
        heads = _spans(inner // head_dim, head_dim)
        inputs = [at(name) for name in names.attention_inputs]
        # one matrix for q, k and v: a head has rows in each of its thirds
        rows = heads if len(inputs) == 3 else torch.cat([heads + third * inner for third in range(3)], dim=1)
        yield UnitGroup(at("heads"), "vision", "heads", dict.fromkeys(inputs, rows), at(names.output), heads)
        channels = _spans(_inner(model, at(names.down)), 1)
        widened = [at(name) for name in (names.gate, names.up) if name]
        yield UnitGroup(
            at("channels"), "vision", "channels", dict.fromkeys(widened, channels), at(names.down), channels
        )


def _decoder_groups(model: nn.Module, family: Family, config: Config) -> Iterator[UnitGroup]:
    names, head_dim = family.decoder, family.decoder_shape(config).head_dim
    if names.query_key_value or names.gate_up or names.experts:
        raise Unsupported(
            f"the decoder of {family.model_type} keeps several layers in one matrix, or has experts; pruning knows "
            "separate ones only. Prune the vision half alone."
        )
    root = f"{family.parts.decoder}.{names.layers}"
    for index in range(_children(model, root)):
        at = f"{root}.{index}.".__add__
        keys = linear(model, at(names.key)).out_features // head_dim
        queries = _spans(keys, _inner(model, at(names.output)) // keys)
        pairs = _spans(keys, head_dim)
        producers = {at(names.query): queries, at(names.key): pairs, at(names.value): pairs}
        yield UnitGroup(at("heads"), "decoder", "heads", producers, at(names.output), queries)
        channels = _spans(_inner(model, at(names.down)), 1)
        widened = dict.fromkeys((at(names.gate), at(names.up)), channels)
        yield UnitGroup(at("channels"), "decoder", "channels", widened, at(names.down), channels)


def _children(model: nn.Module, path: str) -> int:
    return len(list(model.get_submodule(path).children()))


def _inner(model: nn.Module, path: str) -> int:
    return int(linear(model, path).in_features)


def _spans(count: int, width: int) -> Tensor:
    return torch.arange(count * width).view(count, width)


def linear(model: nn.Module, path: str) -> nn.Linear:
    """The linear layer at ``path``. Raises ``Invalid`` where something else is there."""
    module = model.get_submodule(path)
    if not isinstance(module, nn.Linear):
        raise Invalid(f"{path} is a {type(module).__name__}; only linear layers can be narrowed.", field="family")
    return module


@contextmanager
def gated(model: nn.Module, groups: Sequence[UnitGroup], gates: Mapping[str, Tensor]) -> Iterator[None]:
    """Within, the input of every group's consumer is multiplied by ``gates[group.name]`` [units], unit by unit."""
    handles = []
    for group in groups:
        owner = group.unit_of_column()

        def gate(
            module: nn.Module, inputs: tuple[Tensor, ...], gate_U: Tensor = gates[group.name], owner_K: Tensor = owner
        ) -> tuple[Tensor, ...]:
            return (inputs[0] * gate_U[owner_K], *inputs[1:])

        handles.append(linear(model, group.consumer).register_forward_pre_hook(gate))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def narrow(model: nn.Module, group: UnitGroup, keep: Tensor, consumer_weight_NK: Tensor | None = None) -> None:
    """Leave only the units ``keep`` (int64, sorted) of ``group`` in ``model``, in place.

    ``consumer_weight_NK`` [N, kept columns] takes the place of the consumer's remaining columns (closed-form repair).
    """
    for path, rows in group.producers.items():
        layer = linear(model, path)
        chosen = rows[keep].flatten()
        if len(group.producers) == 1 and rows.shape[1] > group.width:  # q, k and v in one matrix: thirds stay thirds
            chosen = rows[keep].view(len(keep), -1, group.width).transpose(0, 1).flatten()
        layer.weight = nn.Parameter(layer.weight[chosen].clone(), requires_grad=layer.weight.requires_grad)
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias[chosen].clone(), requires_grad=layer.bias.requires_grad)
        layer.out_features = len(chosen)
    layer = linear(model, group.consumer)
    columns = group.columns[keep].flatten()
    weight = layer.weight[:, columns] if consumer_weight_NK is None else consumer_weight_NK
    layer.weight = nn.Parameter(weight.clone(), requires_grad=layer.weight.requires_grad)
    layer.in_features = len(columns)
