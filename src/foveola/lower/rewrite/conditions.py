"""Conditions that a rule sets besides its pattern. Each is a name, what it says when it fails, and a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from foveola.lower.rewrite.facts import Facts
from foveola.lower.rewrite.graph import constant, integer, ints
from foveola.lower.rewrite.pattern import Match


@dataclass(frozen=True, slots=True)
class Condition:
    """``holds`` is asked of a match; ``says`` is the reason where it does not."""

    says: str
    holds: Callable[[Match, Facts], bool]


def _static(match: Match, facts: Facts) -> bool:
    values = [value for node in match.nodes for value in (*node.inputs, *node.outputs) if value is not None]
    return all(facts.is_static(value) for value in values)


STATIC = Condition("a shape is not static", _static)


def is_winograd(node: ir.Node) -> bool:
    """3x3, stride 1, dilation 1, one group: what Winograd's F(2x2, 3x3) computes."""
    weight = constant(node.inputs[1])
    return (
        weight is not None
        and weight.shape[2:] == (3, 3)
        and ints(node, "strides", (1, 1)) == (1, 1)
        and ints(node, "dilations", (1, 1)) == (1, 1)
        and integer(node, "group", 1) == 1
    )


def is_depthwise(node: ir.Node) -> bool:
    """One filter per channel."""
    weight = constant(node.inputs[1])
    group = integer(node, "group", 1)
    return weight is not None and group > 1 and weight.shape[1] == 1 and weight.shape[0] == group


WINOGRAD = Condition(
    "Winograd needs 3x3, stride 1, dilation 1 and one group", lambda match, facts: is_winograd(match.named["conv"])
)
DEPTHWISE = Condition("the convolution is not depthwise", lambda match, facts: is_depthwise(match.named["conv"]))


def aligned(multiple: int, axis: int) -> Condition:
    """The size of the result along ``axis`` (from the right if negative) is a multiple."""

    def holds(match: Match, facts: Facts) -> bool:
        shape = facts.shape(match.root.outputs[0])
        return shape is not None and len(shape) >= max(-axis, axis + 1) and shape[axis] % multiple == 0

    return Condition(f"axis {axis} is no multiple of {multiple}", holds)


def _last_axis(match: Match, facts: Facts) -> bool:
    node = match.named["softmax"]
    shape = facts.shape(node.inputs[0])
    return shape is not None and integer(node, "axis", -1) in (-1, len(shape) - 1)


LAST_AXIS = Condition("the softmax is not over the last axis", _last_axis)


def _bias_per_column(match: Match, facts: Facts) -> bool:
    if "bias" not in match.values:  # the alternative without one was found
        return True
    bias, shape = constant(match.values["bias"]), facts.shape(match.named["matmul"].outputs[0])
    if bias is None or shape is None or bias.ndim == 0:
        return False
    return bias.shape[-1] == shape[-1] == bias.size and bias.ndim <= len(shape)


BIAS_PER_COLUMN = Condition("what is added is no bias per column", _bias_per_column)


def _weights_constant(match: Match, facts: Facts) -> bool:
    node = match.named["matmul"] if "matmul" in match.named else match.named["conv"]
    weight = node.inputs[1]
    return weight is not None and weight.name not in facts.data


WEIGHTS = Condition("the weights are no constant", _weights_constant)


def clipped(low: float, high: float) -> Condition:
    """The ``Clip`` named clip has these bounds, and they are constants."""

    def holds(match: Match, facts: Facts) -> bool:
        node = match.named.get("clip")
        if node is None:
            return True
        bounds = [constant(value) for value in node.inputs[1:]]
        if len(bounds) == 2 and bounds[0] is not None and bounds[1] is not None:
            return float(bounds[0].reshape(())) == low and float(bounds[1].reshape(())) == high
        old = [node.attributes.get(name) for name in ("min", "max")]
        return all(one is not None for one in old) and [one.as_float() for one in old if one] == [low, high]

    return Condition(f"the bounds are not {low:g} and {high:g}", holds)


def _norm_axes(match: Match, facts: Facts) -> bool:
    for name in ("mean", "variance"):
        node = match.named[name]
        shape = facts.shape(node.inputs[0])
        given = constant(node.inputs[1]) if len(node.inputs) > 1 else None
        axes = ints(node, "axes", ()) if given is None else tuple(int(axis) for axis in given.reshape(-1))
        if shape is None or len(axes) != 1 or axes[0] not in (-1, len(shape) - 1) or not integer(node, "keepdims", 1):
            return False
    return True


NORM_AXES = Condition("the mean is not over the last axis", _norm_axes)


def _norm_numbers(match: Match, facts: Facts) -> bool:
    width = (facts.shape(match.root.outputs[0]) or (0,))[-1]
    return all(
        (array := constant(match.values[name])) is not None and array.size == array.shape[-1] == width
        for name in ("gamma", "beta")
        if name in match.values
    )


NORM_NUMBERS = Condition("scale and shift are not one number per column", _norm_numbers)


def _attention_axes(match: Match, facts: Facts) -> bool:
    shapes = [facts.shape(match.values[name]) for name in ("q", "k", "v")]
    if any(shape is None or len(shape) < 3 for shape in shapes):
        return False
    q, k, v = (shape or () for shape in shapes)
    return q[:-2] == k[:-2] == v[:-2] and k[-1] == v[-2] and all(match.values[n].name in facts.data for n in "qkv")


ATTENTION_AXES = Condition("queries, keys and values do not belong to the same heads", _attention_axes)


def _per_head_scale(match: Match, facts: Facts) -> bool:
    scale = constant(match.values["scale"]) if "scale" in match.values else np.ones(1)
    return scale is not None and scale.size == 1


ONE_SCALE = Condition("scores are scaled by more than one number", _per_head_scale)
