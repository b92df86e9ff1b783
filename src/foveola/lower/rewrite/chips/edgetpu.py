"""Google Edge TPU (Coral): int8 TensorFlow Lite, one delegate up to the first operator that it lacks."""

from __future__ import annotations

from foveola.lower.rewrite.chips.base import Chip, Rule
from foveola.lower.rewrite.conditions import DEPTHWISE, STATIC, WEIGHTS, clipped
from foveola.lower.rewrite.pattern import Op, Var
from foveola.lower.rewrite.patterns import GEMM, conv, relu, relu6

_POOL = Op(("AveragePool", "GlobalAveragePool"), (Var("x"),))
_OPERATORS = (
    "Conv ConvTranspose Gemm MatMul Add Sub Mul Relu Clip Sigmoid Tanh HardSigmoid HardSwish MaxPool AveragePool "
    "GlobalAveragePool ReduceMean ReduceSum ReduceMax Reshape Flatten Squeeze Unsqueeze Identity Concat Split Slice "
    "Pad Softmax Resize Transpose DepthToSpace QuantizeLinear DequantizeLinear BatchNormalization PRelu Min Max ArgMax"
)
EDGE_TPU = Chip(
    name="edgetpu",
    title="Google Edge TPU",
    rules=(
        Rule("DepthwiseConvRelu6", relu6(conv()), (STATIC, DEPTHWISE, clipped(0, 6))),
        Rule("DepthwiseConvRelu", relu(conv()), (STATIC, DEPTHWISE)),
        Rule("ConvRelu6", relu6(conv()), (STATIC, clipped(0, 6))),
        Rule("ConvRelu", relu(conv()), (STATIC,)),
        Rule("FullyConnectedRelu", relu(GEMM), (STATIC, WEIGHTS)),
        Rule("AvgPoolQuantize", Op(("QuantizeLinear",), (_POOL,), rest=True), (STATIC,)),
    ),
    flops_per_s=4e12,
    bytes_per_s=4e9,
    launch_s=2e-6,
    channels=4,
    numbers_from="published peak (int8); bandwidth, launch and host (4 Gflop/s) are assumed",
    operators=frozenset(_OPERATORS.split()),
    host_flops_per_s=4e9,
)
