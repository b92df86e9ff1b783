"""BatchNormalization after a convolution goes into its weights: w' = w * g / sqrt(var + eps), b' likewise.

Folded in float64, stored in the weights' type. Only where the convolution has no other reader.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import Array, Replacement, constant, integer, node_name, number

RULE = "fold-batchnorm"


def find(model: ir.Model, facts: Facts) -> Iterator[Replacement]:
    """Convolutions followed by a batch norm with constant numbers."""
    for norm in model.graph:
        if node_name(norm) != "BatchNormalization" or integer(norm, "training_mode", 0):
            continue
        between = norm.inputs[0]
        conv = between.producer() if between is not None else None
        if between is None or conv is None or node_name(conv) not in ("Conv", "ConvTranspose"):
            continue
        if node_name(conv) == "ConvTranspose" and integer(conv, "group", 1) != 1:
            continue
        if between.is_graph_output() or len(between.uses()) > 1 or len(norm.outputs) > 1:
            continue
        folded = _folded(conv, norm)
        if folded is not None:
            yield _replacement(conv, norm, *folded)


def _folded(conv: ir.Node, norm: ir.Node) -> tuple[Array, Array] | None:
    weight = constant(conv.inputs[1])
    numbers = [constant(value) for value in norm.inputs[1:5]]
    bias_value = conv.inputs[2] if len(conv.inputs) > 2 else None
    bias = constant(bias_value)
    if weight is None or any(one is None for one in numbers) or (bias_value is not None and bias is None):
        return None
    if any(one is not None and one.ndim != 1 for one in numbers):
        return None
    gamma, beta, mean, variance = (one.astype(np.float64) for one in numbers if one is not None)
    factor = gamma / np.sqrt(variance + number(norm, "epsilon", 1e-5))
    shape = [1] * weight.ndim
    shape[1 if node_name(conv) == "ConvTranspose" else 0] = -1
    shift = (0.0 if bias is None else bias.astype(np.float64)) - mean
    scaled: Array = (weight.astype(np.float64) * factor.reshape(shape)).astype(weight.dtype)
    moved: Array = (shift * factor + beta).astype(weight.dtype)
    return scaled, moved


def _replacement(conv: ir.Node, norm: ir.Node, weight: Array, bias: Array) -> Replacement:
    held = tuple(
        ir.Value(
            name=f"{norm.name}.{what}",
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            const_value=ir.tensor(array, name=f"{norm.name}.{what}"),
        )
        for what, array in (("weight", weight), ("bias", bias))
    )
    new = ir.Node(
        "", conv.op_type, [conv.inputs[0], *held], list(conv.attributes.values()), num_outputs=1, name=conv.name
    )
    return Replacement(RULE, (conv, norm), norm.outputs[0], (new,), new.outputs[0], constants=held)
