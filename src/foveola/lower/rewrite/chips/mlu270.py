"""Cambricon MLU270."""

from __future__ import annotations

from foveola.lower.rewrite.chips.base import Chip, Rule
from foveola.lower.rewrite.conditions import (
    BIAS_PER_COLUMN,
    LAST_AXIS,
    NORM_AXES,
    NORM_NUMBERS,
    STATIC,
    WEIGHTS,
    WINOGRAD,
    aligned,
)
from foveola.lower.rewrite.pattern import Op
from foveola.lower.rewrite.patterns import ANY_PRODUCT, LAYER_NORM, LINEAR, conv, gelu, relu, sigmoid_times

_PRODUCT = (WEIGHTS, BIAS_PER_COLUMN)
MLU270 = Chip(
    name="mlu270",
    title="Cambricon MLU270",
    rules=(
        Rule("WinogradConvRelu", relu(conv()), (STATIC, WINOGRAD, aligned(16, 1)), speedup=2.25),
        Rule("ConvRelu", relu(conv())),
        Rule("ConvSilu", sigmoid_times(conv())),
        Rule("GemmSoftmax", Op(("Softmax",), (ANY_PRODUCT,), name="softmax"), (STATIC, LAST_AXIS, BIAS_PER_COLUMN)),
        Rule("GemmRelu", relu(LINEAR), _PRODUCT),
        Rule("GemmGelu", gelu(LINEAR), _PRODUCT),
        Rule("GemmBias", LINEAR.options[0], _PRODUCT),
        Rule("LayerNorm", LAYER_NORM, (NORM_AXES, NORM_NUMBERS)),
    ),
    flops_per_s=64e12,
    bytes_per_s=102e9,
    launch_s=8e-6,
    channels=16,
    numbers_from="data sheet (int16, LPDDR4); the launch of 8 us is assumed",
)
