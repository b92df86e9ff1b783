"""Patterns that several chips share: activations, biased products, norms, attention."""

from __future__ import annotations

import math

from foveola.lower.rewrite.pattern import Const, Either, Op, Pattern, Same, Scalar, Var

X = Var("x")


def conv(x: Pattern = X) -> Op:
    """A convolution, with or without bias."""
    return Op(("Conv",), (x, Const("weight")), rest=True, name="conv")


def biased(x: Pattern = X) -> Op:
    """``x @ weight + bias``."""
    return Op(("Add",), (Op(("MatMul",), (x, Var("weight")), name="matmul"), Const("bias")))


GEMM = Op(("Gemm",), (Var("x"), Var("weight")), rest=True, name="matmul")
PRODUCT = Op(("MatMul",), (Var("x"), Var("weight")), name="matmul")
LINEAR = Either((biased(), GEMM))
ANY_PRODUCT = Either((biased(), GEMM, PRODUCT))


def relu(x: Pattern) -> Op:
    """``max(x, 0)``."""
    return Op(("Relu",), (x,))


def relu6(x: Pattern) -> Op:
    """``Clip``; its bounds are a condition."""
    return Op(("Clip",), (x,), rest=True, name="clip")


def sigmoid_times(x: Pattern, slope: float | None = None) -> Pattern:
    """``x * sigmoid(slope * x)``: SiLU, and with 1.702 the quick GELU."""
    v = Same("v", x)
    inner: Pattern = v if slope is None else Op(("Mul",), (v, Scalar(slope)))
    chain = Op(("Mul",), (v, Op(("Sigmoid",), (inner,))))
    whole = ("Swish",) if slope is None else ("com.microsoft:QuickGelu",)
    return Either((chain, Op(whole, (x,))))


def gelu(x: Pattern) -> Pattern:
    """The exact GELU by ``Erf`` in the orders in which exporters write it, or as one operator."""
    v = Same("v", x)
    scaled = Either((Op(("Div",), (v, Scalar(math.sqrt(2)))), Op(("Mul",), (v, Scalar(1 / math.sqrt(2))))))
    one = Op(("Add",), (Op(("Erf",), (scaled,)), Scalar(1)))
    half = Scalar(0.5)
    return Either(
        (
            Op(("Mul",), (Op(("Mul",), (v, one)), half)),
            Op(("Mul",), (v, Op(("Mul",), (one, half)))),
            Op(("Mul",), (Op(("Mul",), (v, half)), one)),
            Op(("Gelu", "com.microsoft:Gelu", "com.microsoft:FastGelu"), (x,)),
        )
    )


def _layer_norm() -> Pattern:
    mean = Op(("ReduceMean",), (Var("x"),), rest=True, name="mean")
    d = Same("d", Op(("Sub",), (Var("x"), mean)))
    square = Either((Op(("Pow",), (d, Scalar(2))), Op(("Mul",), (d, d))))
    variance = Op(("ReduceMean",), (square,), rest=True, name="variance")
    root = Op(("Sqrt",), (Op(("Add",), (variance, Const("epsilon"))),))
    scaled = Op(("Mul",), (Op(("Div",), (d, root)), Const("gamma")))
    return Op(("Add",), (scaled, Const("beta")))


LAYER_NORM = _layer_norm()
"""The nine operators that exporters before opset 17 write."""


def _attention() -> Pattern:
    scores = Op(("MatMul",), (Var("q"), Var("k")))
    scaled = Either((Op(("Mul", "Div"), (scores, Const("scale"))), scores))
    masked = Either((Op(("Add",), (scaled, Var("mask"))), scaled))
    return Op(("MatMul",), (Op(("Softmax",), (masked,), name="softmax"), Var("v")))


ATTENTION = _attention()
"""softmax(scale * Q K + mask) V; K comes transposed."""
