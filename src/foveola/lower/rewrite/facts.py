"""What is known of every value: measured shape, whether it is static, whether it depends on inputs or weights only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from foveola.lower.rewrite.graph import Array, node_name

_SIZE_FROM_DATA = {"NonZero", "NonMaxSuppression", "Unique", "Compress", "Loop", "If", "Scan", "StringSplit"}
_SIZE_FROM_INPUTS = {"Reshape", "Expand", "Tile", "Pad", "Slice", "Resize", "Upsample", "TopK", "Range", "OneHot"}
_SIZE_FROM_INPUTS |= {"ConstantOfShape", "Squeeze", "Unsqueeze", "Split", "CenterCropPad", "Trilu"}
_RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
_SIZE_ONLY = {"Shape", "Size"}
VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}
"""Operators that only rename what lies in memory: no kernel, no bytes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """``traced``: what values were. ``open``: values whose shape can change. ``data``: values that inputs decide."""

    traced: Mapping[str, Array]
    open: frozenset[str]
    data: frozenset[str]

    def shape(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """The measured shape."""
        array = self.traced.get(value.name or "") if value is not None else None
        return None if array is None else tuple(array.shape)

    def is_static(self, value: ir.Value) -> bool:
        """Whether no input can give the value another shape."""
        return value.name not in self.open

    def is_kernel(self, node: ir.Node) -> bool:
        """Whether the node is work on the chip: no view, and not computable before the first input comes."""
        return node_name(node) not in VIEWS and any(value.name in self.data for value in node.outputs)

    def bytes_of(self, value: ir.Value | None) -> int:
        """Bytes of the measured value."""
        array = self.traced.get(value.name or "") if value is not None else None
        return 0 if array is None else array.nbytes


def facts_of(model: ir.Model, traced: Mapping[str, Array]) -> Facts:
    """Follow the inputs through the graph: which shapes and which numbers they decide."""
    open_names, data = set(), set()
    for value in model.graph.inputs:
        assert value.name is not None
        data.add(value.name)
        if value.shape is None or not all(isinstance(size, int) for size in value.shape):
            open_names.add(value.name)
    for node in model.graph:
        inputs = [value.name for value in node.inputs if value is not None]
        inner = any(one.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for one in node.attributes.values())
        any_open = inner or any(name in open_names for name in inputs)  # what a branch reads is no input of its node
        any_data = inner or any(name in data for name in inputs) or node.op_type in _RANDOM
        sizes = {
            value.name for value in node.inputs[0 if node.op_type in ("Range", "ConstantOfShape") else 1 :] if value
        }
        moves = (node.op_type in _SIZE_FROM_DATA and any_data) or (
            node.op_type in _SIZE_FROM_INPUTS and bool(sizes & data)
        )
        for value in node.outputs:
            name = value.name or ""
            if node.op_type in _SIZE_ONLY:
                if any_open:
                    data.add(name)
                continue
            if any_data:
                data.add(name)
            if any_open or moves:
                open_names.add(name)
    return Facts(traced, frozenset(open_names), frozenset(data))
