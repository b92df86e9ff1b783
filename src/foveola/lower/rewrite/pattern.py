"""Patterns of operators, matched from the last node backwards, with every way of swapping what commutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from foveola.lower.rewrite.graph import constant, node_name

COMMUTES = {"Add", "Mul"}


@dataclass(frozen=True, slots=True)
class Var:
    """Any value; the same one wherever the name comes again."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A constant, of any content."""

    name: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant of one number, close to ``value`` (relative 1e-4: exporters write 1.4142 for the root of 2)."""

    value: float


@dataclass(frozen=True, slots=True)
class Op:
    """One of ``types`` on ``inputs``; where ``rest``, it may have more inputs than those. ``name`` finds the node."""

    types: tuple[str, ...]
    inputs: tuple[Pattern, ...]
    rest: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Either:
    """One of several patterns, tried in order."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Same:
    """A pattern whose value comes several times: the first place matches it, the others have to be that value."""

    name: str
    of: Pattern


Pattern = Var | Const | Scalar | Op | Either | Same


@dataclass(frozen=True, slots=True)
class Match:
    """Nodes that were found, last one first, and what names stand for."""

    nodes: tuple[ir.Node, ...] = ()
    values: Mapping[str, ir.Value] = field(default_factory=lambda: MappingProxyType({}))
    named: Mapping[str, ir.Node] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def root(self) -> ir.Node:
        """The last node."""
        return self.nodes[0]

    def with_value(self, name: str, value: ir.Value) -> Match:
        """This and one more name for a value."""
        return Match(self.nodes, {**self.values, name: value}, self.named)

    def with_node(self, node: ir.Node, name: str) -> Match:
        """This and one more node."""
        nodes = self.nodes if node in self.nodes else (*self.nodes, node)
        return Match(nodes, self.values, {**self.named, name: node} if name else self.named)


def matches(pattern: Pattern, value: ir.Value | None, so_far: Match = Match()) -> Iterator[Match]:
    """Every way in which ``pattern`` is what computes ``value``."""
    if value is None:
        return
    if isinstance(pattern, Either):
        for option in pattern.options:
            yield from matches(option, value, so_far)
    elif isinstance(pattern, (Same, Var)):
        if pattern.name in so_far.values:
            if so_far.values[pattern.name] is value:
                yield so_far
        elif isinstance(pattern, Var):
            yield so_far.with_value(pattern.name, value)
        else:
            for found in matches(pattern.of, value, so_far):
                yield found.with_value(pattern.name, value)
    elif isinstance(pattern, Const):
        if constant(value) is not None:
            yield so_far.with_value(pattern.name, value)
    elif isinstance(pattern, Scalar):
        array = constant(value)
        if array is not None and array.size == 1 and np.isclose(float(array.reshape(())), pattern.value, 1e-4, 0):
            yield so_far
    else:
        yield from _matches_node(pattern, value, so_far)


def _matches_node(pattern: Op, value: ir.Value, so_far: Match) -> Iterator[Match]:
    node = value.producer()
    if node is None or value.index() != 0 or node_name(node) not in pattern.types:
        return
    if len(node.inputs) < len(pattern.inputs) or (len(node.inputs) > len(pattern.inputs) and not pattern.rest):
        return
    given = list(node.inputs)
    orders = [given]
    if node_name(node) in COMMUTES and len(given) == 2:
        orders.append(given[::-1])
    for order in orders:
        states = [so_far.with_node(node, pattern.name)]
        for one, what in zip(pattern.inputs, order, strict=False):
            states = [found for state in states for found in matches(one, what, state)]
        yield from states


def closed(match: Match) -> bool:
    """Whether nobody outside of the match reads what is inside of it: the single consumer of every inner value."""
    inside = set(match.nodes)
    for node in match.nodes:
        for index, value in enumerate(node.outputs):
            if node is match.root and index == 0:
                continue
            if value.is_graph_output() or any(user not in inside for user, _ in value.uses()):
                return False
    return True
