"""Small graphs with known answers: what a chip has to fuse in each, and near-misses that it must leave.

Weights are drawn; the answer is written beside the construction of each graph and never taken from the rewriter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from foveola.lower.rewrite.graph import Array

OPSET = 17


@dataclass(frozen=True, slots=True)
class Case:
    """``expected`` counts every rewrite by name; empty for a near-miss that has to stay as it is."""

    name: str
    chip: str
    model: ir.Model
    expected: Counter[str]


class Maker:
    """Builds one graph: ``x`` is its input, each call of ``add`` one node, the last value its output."""

    def __init__(self, shape: tuple[int | str, ...], seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.outputs: list[str] = []

    def weight(self, *shape: int, positive: bool = False) -> str:
        """A drawn constant."""
        numbers = self.draw.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
        return self.constant((np.abs(numbers) + 0.5 if positive else numbers).astype(np.float32))

    def constant(self, array: Array) -> str:
        """This constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, value: float) -> str:
        """A constant of one number."""
        return self.constant(np.asarray(value, np.float32))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node; returns its first output."""
        names = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def model(self, *outputs: str) -> ir.Model:
        """The graph with these outputs."""
        graph = helper.make_graph(
            self.nodes,
            "case",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(self.shape))],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            self.weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        typed = onnx.shape_inference.infer_shapes(made)
        return ir.from_proto(typed)


def convolution(
    make: Maker, x: str, cin: int, cout: int, *, size: int = 3, stride: int = 1, group: int = 1, bias: bool = True
) -> str:
    """A convolution that keeps its size at stride 1."""
    inputs = [x, make.weight(cout, cin // group, size, size), *([make.weight(cout)] if bias else [])]
    pads = [size // 2] * 4
    return make.add("Conv", *inputs, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads, group=group)


def batch_norm(make: Maker, x: str, channels: int) -> str:
    """A batch norm with drawn statistics."""
    numbers = [make.weight(channels, positive=True), make.weight(channels), make.weight(channels)]
    return make.add("BatchNormalization", x, *numbers, make.weight(channels, positive=True))


def exact_gelu(make: Maker, x: str, order: int = 0, root: float = math.sqrt(2)) -> str:
    """The GELU by Erf, in one of three orders; another ``root`` makes it none."""
    one = make.add("Add", make.add("Erf", make.add("Div", x, make.number(root))), make.number(1))
    half = make.number(0.5)
    if order == 0:
        return make.add("Mul", make.add("Mul", x, one), half)
    if order == 1:
        return make.add("Mul", x, make.add("Mul", one, half))
    return make.add("Mul", make.add("Mul", x, half), one)


def layer_norm(make: Maker, x: str, width: int, axis: int = -1, square: bool = False) -> str:
    """The nine operators of a layer norm."""
    d = make.add("Sub", x, make.add("ReduceMean", x, axes=[axis]))
    squared = make.add("Mul", d, d) if square else make.add("Pow", d, make.number(2))
    variance = make.add("ReduceMean", squared, axes=[axis])
    root = make.add("Sqrt", make.add("Add", variance, make.number(1e-5)))
    return make.add("Add", make.add("Mul", make.add("Div", d, root), make.weight(width)), make.weight(width))


def _conv_relu(seed: int, chip: str) -> Iterator[Case]:
    """Conv-(BN)-ReLU: stride, kernel, groups and a second consumer vary."""
    draw = np.random.default_rng(seed)
    size, stride = int(draw.choice([1, 3, 5])), int(draw.choice([1, 2]))
    cout, norm = int(draw.choice([12, 16, 32])), bool(draw.integers(2))
    depthwise, shared = bool(draw.integers(2)), int(draw.integers(3))
    cin = cout if depthwise else 8
    make = Maker((1, cin, 8, 8), seed)
    group = cout if depthwise else 1
    inner = convolution(make, "x", cin, cout, size=size, stride=stride, group=group, bias=bool(draw.integers(2)))
    outputs = [inner] if shared == 1 else []
    if norm:
        inner = batch_norm(make, inner, cout)
        outputs += [inner] if shared == 2 else []
    relu = make.add("Relu", inner)
    expected: Counter[str] = Counter()
    folds = norm and shared != 1
    if folds:
        expected["fold-batchnorm"] += 1
    seen = shared == 2 and norm
    if (folds or not norm) and not seen and not (shared == 1 and not norm):
        winograd = chip == "mlu270" and size == 3 and stride == 1 and not depthwise and cout % 16 == 0
        kind = "WinogradConvRelu" if winograd else "ConvRelu"
        expected["DepthwiseConvRelu" if chip == "edgetpu" and depthwise else kind] += 1
    yield Case(
        f"conv-relu k{size} s{stride} g{group} norm={norm} shared={shared}", chip, make.model(relu, *outputs), expected
    )


def _conv_silu(seed: int, chip: str) -> Iterator[Case]:
    """x * sigmoid(x); the near-miss multiplies with another value."""
    make, miss = Maker((1, 16, 6, 6), seed), seed % 3
    x = convolution(make, "x", 16, 16)
    gate = make.add("Sigmoid", x)
    last = (
        make.add("Mul", "x" if miss == 1 else x, gate) if seed % 2 else make.add("Mul", gate, "x" if miss == 1 else x)
    )
    fused = chip != "edgetpu" and miss == 0
    yield Case(
        f"conv-silu miss={miss}", chip, make.model(last, *([gate] if miss == 2 else [])), Counter(["ConvSilu"] * fused)
    )


def _linear(seed: int, chip: str) -> Iterator[Case]:
    """MatMul-Add-(GELU): a bias per row, a second consumer, a width off the grid, another root are near-misses."""
    miss, order = seed % 6, seed % 3
    width = 24 if miss == 3 else 32
    make = Maker((2, width, 16), seed)
    product = make.add("MatMul", "x", make.weight(16, width))
    bias = make.weight(width, 1) if miss == 1 else make.weight(width)
    added = make.add("Add", *((product, bias) if order else (bias, product)))
    last = exact_gelu(make, added, order, 1.5 if miss == 4 else math.sqrt(2))
    outputs = [added] if miss == 2 else [product] if miss == 5 else []
    ascend = {
        0: ["MatMulAddGelu"],
        1: ["Gelu"],
        2: ["MatMulAdd", "Gelu"],
        3: ["Gelu"],
        4: ["MatMulAdd"],
        5: ["Gelu"],
    }[miss]
    mlu = {0: ["GemmGelu"], 2: ["GemmBias"], 3: ["GemmGelu"], 4: ["GemmBias"]}.get(miss, [])
    expected = {"ascend910b": ascend, "mlu270": mlu, "edgetpu": []}[chip]
    yield Case(f"linear-gelu miss={miss} order={order}", chip, make.model(last, *outputs), Counter(expected))


def _norm(seed: int, chip: str) -> Iterator[Case]:
    """A layer norm in parts; over another axis it is none."""
    miss = seed % 3
    make = Maker((2, 16, 16), seed)
    last = layer_norm(make, "x", 16, axis=1 if miss == 1 else -1, square=bool(seed % 2))
    inner = make.nodes[0].output[0]  # the mean
    expected = ["LayerNorm"] if miss == 0 and chip != "edgetpu" else []
    yield Case(f"layer-norm miss={miss}", chip, make.model(last, *([inner] if miss == 2 else [])), Counter(expected))


def _attention(seed: int, chip: str) -> Iterator[Case]:
    """softmax(QK) V; over another axis, with open shapes, or with the weights read twice it is left."""
    miss = seed % 4
    make = Maker((2, 16 if miss != 2 else "tokens", 16), seed)
    q, k, v = (make.add("MatMul", "x", make.weight(16, 16)) for _ in range(3))
    scores = make.add("MatMul", q, make.add("Transpose", k, perm=[0, 2, 1]))
    if seed % 2:
        scores = make.add("Mul", scores, make.number(0.25))
    weights = make.add("Softmax", scores, axis=1 if miss == 1 else -1)
    last = make.add("MatMul", weights, v)
    expected = ["FlashAttention"] if miss == 0 and chip == "ascend910b" else []
    if chip == "mlu270" and miss == 0 and not seed % 2:
        expected = ["GemmSoftmax"]
    if chip == "mlu270" and miss == 3 and not seed % 2:
        expected = ["GemmSoftmax"]
    outputs = [weights] if miss == 3 else []
    yield Case(f"attention miss={miss} scaled={seed % 2}", chip, make.model(last, *outputs), Counter(expected))


def _clipped(seed: int, chip: str) -> Iterator[Case]:
    """Conv-Clip: only 0 to 6 is ReLU6; pooling and quantising for the Edge TPU."""
    miss, depthwise = seed % 3, bool(seed % 2)
    make = Maker((1, 16, 6, 6), seed)
    inner = convolution(make, "x", 16, 16, group=16 if depthwise else 1)
    last = make.add("Clip", inner, make.number(0), make.number(4 if miss == 1 else 6))
    fused = chip == "edgetpu" and miss == 0
    kind = "DepthwiseConvRelu6" if depthwise else "ConvRelu6"
    outputs = [inner] if miss == 2 else []
    yield Case(f"clip miss={miss} depthwise={depthwise}", chip, make.model(last, *outputs), Counter([kind] * fused))


def _quantised(seed: int, chip: str) -> Iterator[Case]:
    """AveragePool-QuantizeLinear; a second consumer of the pool is a near-miss."""
    make, miss = Maker((1, 8, 8, 8), seed), seed % 2
    pooled = make.add("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2])
    zero = make.constant(np.asarray(0, np.int8))
    last = make.add("QuantizeLinear", pooled, make.number(0.02), zero)
    fused = chip == "edgetpu" and not miss
    outputs = [pooled] if miss else []
    yield Case(f"pool-quantise miss={miss}", chip, make.model(last, *outputs), Counter(["AvgPoolQuantize"] * fused))


def _superfluous(seed: int, chip: str) -> Iterator[Case]:
    """Transposes and operators that do nothing; a second reader of the first transpose is a near-miss."""
    make, miss = Maker((2, 3, 4), seed), seed % 3
    first = make.add("Transpose", "x", perm=[0, 2, 1] if miss != 1 else [1, 0, 2])
    second = make.add("Transpose", first, perm=[0, 2, 1])
    same = make.add("Mul", make.add("Identity", second), make.number(1 if seed % 2 else 2))
    last = make.add("Tanh", same)
    expected = Counter({"drop-noop": 1 + seed % 2})
    if miss != 2:
        expected["cancel-transposes"] += 1
    yield Case(f"no-op miss={miss}", chip, make.model(last, *([first] if miss == 2 else [])), expected)


KINDS: tuple[Callable[[int, str], Iterator[Case]], ...] = (
    _conv_relu,
    _conv_silu,
    _linear,
    _norm,
    _attention,
    _clipped,
    _quantised,
    _superfluous,
)


def corpus(count: int, chips: tuple[str, ...] = ("mlu270", "ascend910b", "edgetpu")) -> Iterator[Case]:
    """``count`` cases, the same ones every time; every kind and every chip alike."""
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        turn = index // len(KINDS)
        yield from kind(turn // len(chips), chips[turn % len(chips)])
