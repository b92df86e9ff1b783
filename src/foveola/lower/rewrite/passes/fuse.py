"""Fusions of a chip's table: candidates, and the function that each becomes, with the original nodes as its body."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import onnx_ir as ir

from foveola.lower.rewrite.chips.base import Chip, Rule
from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import Replacement, constant
from foveola.lower.rewrite.pattern import Match, closed, matches
from foveola.lower.rewrite.proof import copied

_INSIDE = 8
"""Constants of so few numbers are written into the function."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule and nodes, in the graph's order, that it may fuse."""

    rule: Rule
    nodes: tuple[ir.Node, ...]


def candidates(
    model: ir.Model, facts: Facts, chip: Chip, on_chip: frozenset[ir.Node]
) -> tuple[list[Candidate], Counter[str]]:
    """What the chip's rules may fuse, and how often each reason kept one from it."""
    order = {node: index for index, node in enumerate(model.graph)}
    found: list[Candidate] = []
    reasons: Counter[str] = Counter()
    for node in model.graph:
        if not facts.is_kernel(node) or len(node.outputs) == 0:
            continue
        for rule in chip.rules:
            why: str | None = None
            for match in matches(rule.pattern, node.outputs[0]):
                why = _objection(match, rule, facts, on_chip)
                if why is None:
                    nodes = tuple(sorted(match.nodes, key=order.__getitem__))
                    found.append(Candidate(rule, nodes))
                    break
            if why is not None:
                reasons[f"{rule.kernel}: {why}"] += 1
    return found, reasons


def _objection(match: Match, rule: Rule, facts: Facts, on_chip: frozenset[ir.Node]) -> str | None:
    if not closed(match):
        return "an inner value has another consumer"
    if not all(node in on_chip for node in match.nodes):
        return "it runs on the host"
    return next((condition.says for condition in rule.conditions if not condition.holds(match, facts)), None)


def replacement_of(model: ir.Model, chip: Chip, candidate: Candidate) -> Replacement:
    """One call of a function whose body is the nodes. Equal bodies get equal names."""
    made = {id(value) for node in candidate.nodes for value in node.outputs}
    read = {id(value): value for node in candidate.nodes for value in node.inputs if value is not None}
    known: dict[int, ir.Value] = {}
    outer: list[ir.Value] = []
    body: list[ir.Node] = []
    for key, value in read.items():
        if key in made:
            continue
        array = constant(value)
        if array is not None and array.size <= _INSIDE and array.ndim <= 1:
            node = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(array))], num_outputs=1)
            node.outputs[0].name = f"c{len(body)}"
            known[key] = node.outputs[0]
            body.append(node)
        else:
            known[key] = ir.Value(name=f"x{len(outer)}")
            outer.append(value)
    inputs = [known[id(value)] for value in outer]
    inner = copied(candidate.nodes, known)
    for index, node in enumerate(inner):
        node.name = f"{node.op_type}_{index}"
        for position, value in enumerate(node.outputs):
            value.name = f"t{index}_{position}"
    result = candidate.nodes[-1].outputs[0]
    domains = {node.domain for node in inner}
    opsets = {name: version for name, version in model.graph.opset_imports.items() if name in domains | {""}}
    graph = ir.Graph(inputs, [known[id(result)]], nodes=[*body, *inner], opset_imports=opsets)
    draft = ir.Function(chip.domain, "draft", graph=graph, attributes=[])
    name = f"{candidate.rule.kernel}_{_digest(draft)}"
    function = ir.Function(chip.domain, name, graph=draft.graph, attributes=[])
    call = ir.Node(
        chip.domain, name, outer, num_outputs=1, name=candidate.nodes[-1].name,
        metadata_props={"foveola.kernel": candidate.rule.kernel},
    )  # fmt: skip
    return Replacement(candidate.rule.kernel, candidate.nodes, result, (call,), call.outputs[0], function=function)


def _digest(function: ir.Function) -> str:
    proto = ir.to_proto(function)
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()[:8]
