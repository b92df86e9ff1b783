"""The cost table: kernels and bytes are counted on the graph as it was run, latency is modelled from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import onnx_ir as ir

from foveola.lower.rewrite.chips.base import Chip
from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import node_name

_PER_NUMBER = {"Softmax": 5, "LayerNormalization": 8, "Erf": 10, "Gelu": 12, "BatchNormalization": 2, "Sigmoid": 4}


@dataclass(frozen=True, slots=True)
class Cost:
    """``kernels`` launched (``host_kernels`` of them beside the chip), ``bytes_moved`` between memory and kernels.

    ``modelled_s`` is a roofline, no measurement: per kernel the longer of computing and moving, and one launch.
    """

    kernels: int
    host_kernels: int
    bytes_moved: int
    modelled_s: float

    def to_json(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def flops(node: ir.Node, facts: Facts) -> float:
    """Floating point operations of one node, by its measured shapes."""
    result = math.prod(facts.shape(node.outputs[0]) or ())
    name = node_name(node)
    if name in ("Conv", "ConvTranspose"):
        weight = facts.shape(node.inputs[1]) or ()
        return 2.0 * result * math.prod(weight[1:])
    if name in ("MatMul", "Gemm"):
        first = facts.shape(node.inputs[0]) or (1,)
        turned = node.attributes.get("transA")
        return 2.0 * result * (first[0] if turned is not None and turned.as_int() else first[-1])
    return float(result * _PER_NUMBER.get(name, 1))


def moved(nodes: Sequence[ir.Node], facts: Facts) -> int:
    """Bytes that one kernel of these nodes reads and writes; what stays inside of it is not moved."""
    inside = set(nodes)
    made = {id(value): value for node in nodes for value in node.outputs}
    read = {id(value): value for node in nodes for value in node.inputs if value is not None and id(value) not in made}
    written = [
        value
        for value in made.values()
        if value.is_graph_output() or any(user not in inside for user, _ in value.uses())
    ]
    return sum(facts.bytes_of(value) for value in (*read.values(), *written))


def seconds(
    nodes: Sequence[ir.Node], facts: Facts, chip: Chip, there: frozenset[ir.Node], speedup: float = 1.0
) -> float:
    """Modelled seconds of one kernel."""
    work = sum(flops(node, facts) for node in nodes)
    rate = chip.flops_per_s * speedup if nodes[0] in there else chip.host_flops_per_s
    return max(work / rate, moved(nodes, facts) / chip.bytes_per_s) + chip.launch_s


def cost_of(
    groups: Iterable[tuple[Sequence[ir.Node], float]], facts: Facts, chip: Chip, there: frozenset[ir.Node]
) -> Cost:
    """The cost of kernels, each its nodes and how much faster than they it computes."""
    kernels = host = traffic = 0
    modelled = 0.0
    for nodes, speedup in groups:
        if not any(facts.is_kernel(node) for node in nodes):
            continue
        kernels += 1
        host += nodes[0] not in there
        traffic += moved(nodes, facts)
        modelled += seconds(nodes, facts, chip, there, speedup)
    return Cost(kernels, host, traffic, modelled)
