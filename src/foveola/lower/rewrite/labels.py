"""Hardware-constraint labels: what of a node decides whether a chip can fuse it or run it at all."""

from __future__ import annotations

import onnx_ir as ir

from foveola.lower.rewrite.chips.base import Chip
from foveola.lower.rewrite.conditions import is_depthwise, is_winograd
from foveola.lower.rewrite.facts import VIEWS, Facts
from foveola.lower.rewrite.graph import ints, node_name

KEY = "foveola.labels"


def on_chip(model: ir.Model, facts: Facts, chip: Chip) -> frozenset[ir.Node]:
    """The nodes before the first that the chip lacks; all, where it lacks none."""
    nodes = []
    for node in model.graph:
        known = chip.operators is None or node_name(node) in chip.operators or not facts.is_kernel(node)
        if not known:
            break
        nodes.append(node)
    return frozenset(nodes)


def labels_of(node: ir.Node, facts: Facts, chip: Chip, runs_there: bool) -> tuple[str, ...]:
    """The labels of one node, sorted: where it runs, whether shapes are static, consumers, alignment, convolutions."""
    labels = {"chip" if runs_there else "host"}
    result = node.outputs[0]
    shape = facts.shape(result)
    values = [value for value in (*node.inputs, result) if value is not None]
    labels.add("static" if all(facts.is_static(value) for value in values) else "dynamic")
    labels.add("single-consumer" if len(result.uses()) + result.is_graph_output() == 1 else "shared")
    if not facts.is_kernel(node):
        labels.add("view" if node_name(node) in VIEWS else "constant")
    if node_name(node) in ("Conv", "ConvTranspose"):
        strides = ints(node, "strides", (1, 1))
        labels.add("stride-1" if set(strides) == {1} else f"stride-{max(strides)}")
        labels |= {name for name, test in (("winograd", is_winograd), ("depthwise", is_depthwise)) if test(node)}
        if shape is not None and shape[1] % chip.channels == 0:
            labels.add(f"aligned-{chip.channels}")
    elif node_name(node) in ("MatMul", "Gemm") and shape and shape[-1] % chip.channels == 0:
        labels.add(f"aligned-{chip.channels}")
    return tuple(sorted(labels))


def label(model: ir.Model, facts: Facts, chip: Chip) -> frozenset[ir.Node]:
    """Write the labels into each node's ``foveola.labels``; returns the nodes that run on the chip."""
    there = on_chip(model, facts, chip)
    for node in model.graph:
        if node.outputs:
            node.metadata_props[KEY] = " ".join(labels_of(node, facts, chip, node in there))
    return there
