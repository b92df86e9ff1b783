"""Two nets of drawn weights to measure fusing on: Conv-BN-ReLU as it is trained, a ViT as exporters write it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from foveola.lower.rewrite.corpus import Maker, batch_norm, convolution, exact_gelu, layer_norm


def conv_net(seed: int = 0, stages: int = 4, width: int = 16, size: int = 32) -> ir.Model:
    """Residual stages of Conv-BN-ReLU, the first convolution of each at stride 2; then a classifier."""
    make = Maker((1, 3, size, size), seed)
    x, cin = "x", 3
    for stage in range(stages):
        cout = width << stage
        x = make.add("Relu", batch_norm(make, convolution(make, x, cin, cout, stride=2, bias=False), cout))
        y = make.add("Relu", batch_norm(make, convolution(make, x, cout, cout, bias=False), cout))
        y = batch_norm(make, convolution(make, y, cout, cout, bias=False), cout)
        x, cin = make.add("Relu", make.add("Add", x, y)), cout
    flat = make.add("Flatten", make.add("GlobalAveragePool", x))
    return make.model(make.add("Gemm", flat, make.weight(10, cin), make.weight(10), transB=1))


def vit(seed: int = 0, blocks: int = 4, width: int = 64, heads: int = 4, patch: int = 8, size: int = 32) -> ir.Model:
    """A ViT with layer norms, attention and GELU in the parts that the standard had before opset 17."""
    make = Maker((1, 3, size, size), seed)
    count, head = (size // patch) ** 2, width // heads
    kernel = make.weight(width, 3, patch, patch)
    patches = make.add("Conv", "x", kernel, make.weight(width), kernel_shape=[patch] * 2, strides=[patch] * 2)
    flat = make.add("Reshape", patches, make.constant(np.array([1, width, count])))
    x = make.add("Add", make.add("Transpose", flat, perm=[0, 2, 1]), make.weight(1, count, width))
    for _ in range(blocks):
        normed = layer_norm(make, x, width)
        q, k, v = (_heads(make, _linear(make, normed, width, width), count, heads, head, turn) for turn in (0, 1, 0))
        scores = make.add("Div", make.add("MatMul", q, k), make.number(head**0.5))
        mixed = make.add("MatMul", make.add("Softmax", scores, axis=-1), v)
        joined = make.add("Transpose", mixed, perm=[0, 2, 1, 3])
        back = make.add("Reshape", joined, make.constant(np.array([1, count, width])))
        x = make.add("Add", x, _linear(make, back, width, width))
        up = exact_gelu(make, _linear(make, layer_norm(make, x, width), width, 4 * width))
        x = make.add("Add", x, _linear(make, up, 4 * width, width))
    return make.model(_linear(make, layer_norm(make, x, width), width, 16))


def _linear(make: Maker, x: str, inputs: int, outputs: int) -> str:
    return make.add("Add", make.add("MatMul", x, make.weight(inputs, outputs)), make.weight(outputs))


def _heads(make: Maker, x: str, count: int, heads: int, head: int, turned: int) -> str:
    apart = make.add("Reshape", x, make.constant(np.array([1, count, heads, head])))
    return make.add("Transpose", apart, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])
