"""Huawei Ascend 910B."""

from __future__ import annotations

from foveola.lower.rewrite.chips.base import Chip, Rule
from foveola.lower.rewrite.conditions import (
    ATTENTION_AXES,
    BIAS_PER_COLUMN,
    LAST_AXIS,
    NORM_AXES,
    NORM_NUMBERS,
    ONE_SCALE,
    STATIC,
    WEIGHTS,
    aligned,
)
from foveola.lower.rewrite.pattern import Var
from foveola.lower.rewrite.patterns import ATTENTION, LAYER_NORM, LINEAR, conv, gelu, relu, sigmoid_times

_PRODUCT = (WEIGHTS, BIAS_PER_COLUMN)
_CUBE = aligned(16, -1)
ASCEND_910B = Chip(
    name="ascend910b",
    title="Huawei Ascend 910B",
    rules=(
        Rule("MatMulAddGelu", gelu(LINEAR), (*_PRODUCT, _CUBE)),
        Rule("MatMulAddQuickGelu", sigmoid_times(LINEAR, 1.702), (*_PRODUCT, _CUBE)),
        Rule("MatMulAddRelu", relu(LINEAR), (*_PRODUCT, _CUBE)),
        Rule("MatMulAdd", LINEAR.options[0], (*_PRODUCT, _CUBE)),
        Rule("ConvSilu", sigmoid_times(conv())),
        Rule("ConvRelu", relu(conv())),
        Rule("FlashAttention", ATTENTION, (STATIC, LAST_AXIS, ONE_SCALE, ATTENTION_AXES)),
        Rule("LayerNorm", LAYER_NORM, (NORM_AXES, NORM_NUMBERS)),
        Rule("Gelu", gelu(Var("x"))),
    ),
    flops_per_s=320e12,
    bytes_per_s=1.6e12,
    launch_s=5e-6,
    channels=16,
    numbers_from="published peaks (fp16, HBM); the launch of 5 us is assumed",
)
