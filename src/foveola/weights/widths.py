"""Layers narrower than config.json's numbers say: how a pruned checkpoint tells, and how its model is built.

config.json of a pruned checkpoint has one more entry, ``foveola_widths``: path -> [outputs, inputs] of every linear
layer that differs from what the rest of config.json would build. Layers may differ from one another, which the
numbers of the families' own formats (one ``intermediate_size`` for all) cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from foveola.exchange import Damaged
from foveola.family import Family, family_of
from foveola.family.base import Config

WIDTHS = "foveola_widths"
_LARGEST = 2**20


def fitted_class(source: Any, config: Config) -> Any:
    """``source``, or where ``config`` has ``WIDTHS``, a class of the same name that builds its layers that wide.

    Raises ``Damaged`` for an entry that is no such table or names a layer that the model has not.
    """
    widths = _checked(config.get(WIDTHS) or {})
    if not widths:
        return source

    def build(self: nn.Module, *arguments: Any, **others: Any) -> None:
        source.__init__(self, *arguments, **others)
        for path, (outputs, inputs) in widths.items():
            layer = _linear_at(self, path)
            narrowed = nn.Linear(inputs, outputs, bias=layer.bias is not None, dtype=layer.weight.dtype)
            self.set_submodule(path, narrowed)
        set_heads(self, family_of(config), config)

    return type(source.__name__, (source,), {"__init__": build, "__module__": source.__module__})


def widths_of(model: nn.Module, usual: Mapping[str, tuple[int, int]], config: Config) -> dict[str, list[int]]:
    """The entry ``WIDTHS`` for ``model``: the linear layers that differ from ``usual``, or that ``config`` has there.

    ``usual`` is ``sizes_of`` the model as it was loaded.
    """
    known = dict(_checked(config.get(WIDTHS) or {}))
    changed = {path: size for path, size in sizes_of(model).items() if usual.get(path) != size}
    return {path: list(size) for path, size in sorted((known | changed).items())}


def sizes_of(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Path -> (outputs, inputs) of every linear layer."""
    return {path: (m.out_features, m.in_features) for path, m in model.named_modules() if isinstance(m, nn.Linear)}


def set_heads(model: nn.Module, family: Family, config: Config) -> None:
    """Tell every attention of ``model`` how many heads its own matrices have."""
    decoder_shape = family.decoder_shape(config)
    group = decoder_shape.heads // decoder_shape.kv_heads
    parts = [(f"{family.parts.decoder}.{family.decoder.layers}", family.decoder.output, decoder_shape.head_dim, group)]
    if family.parts.vision:
        tower_dim = family.tower_shape(config).head_dim
        parts.append((f"{family.parts.vision}.{family.tower.blocks}", family.tower.output, tower_dim, 1))
    for root, output, head_dim, queries_per_key in parts:
        for block in model.get_submodule(root).children():
            path, _, name = output.rpartition(".")
            attention: Any = block.get_submodule(path)
            attention.num_heads = int(getattr(attention, name).in_features) // head_dim
            if hasattr(attention, "num_key_value_heads"):
                attention.num_key_value_heads = attention.num_heads // queries_per_key


def _linear_at(model: nn.Module, path: str) -> nn.Linear:
    try:
        layer: nn.Module | None = model.get_submodule(path)
    except AttributeError:
        layer = None
    if not isinstance(layer, nn.Linear):
        raise Damaged(f"config.json has {WIDTHS} for {path[:80]!r}, where this model has no linear layer.")
    return layer


def _checked(widths: object) -> dict[str, tuple[int, int]]:
    entries = list(widths.items()) if isinstance(widths, Mapping) else None
    if entries is None or not all(_is_width(path, size) for path, size in entries):
        raise Damaged(
            f"config.json: {WIDTHS} gives [outputs, inputs] for the path of every narrowed layer, as whole numbers of "
            "at least 1. Copy config.json again, whole."
        )
    return {path: (size[0], size[1]) for path, size in entries}


def _is_width(path: object, size: object) -> bool:
    if not isinstance(path, str) or not isinstance(size, (list, tuple)) or len(size) != 2:
        return False
    return all(type(n) is int and 0 < n <= _LARGEST for n in size)
