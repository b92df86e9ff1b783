"""Operators of ONNX Runtime, as torch functions for tracing.

Each function puts exactly one node into the exported graph, so that no pattern has to be recognised afterwards.
Outside of an export they return zeros of the right shape: nothing here computes. That the graphs compute what the
model computes is checked at every export, against the model itself (``parity``).

Shapes: B batch, S positions of the chunk, N heads, G key/value heads, D head size, H hidden, T slot length.
"""

from __future__ import annotations

import torch
from torch import Tensor

CONTRIB = "com.microsoft"
OPSET = 23
"""The first with RotaryEmbedding and RMSNormalization."""


def rms_norm(x_BSH: Tensor, weight_H: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square normalisation over the last axis."""
    return torch.onnx.ops.symbolic(
        "::RMSNormalization",
        [x_BSH, weight_H],
        attrs={"axis": -1, "epsilon": epsilon},
        dtype=x_BSH.dtype,
        shape=x_BSH.shape,
        version=OPSET,
    )


def add_rms_norm(x_BSH: Tensor, residual_BSH: Tensor, weight_H: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """``(norm(x + residual), x + residual)`` in one node."""
    # Outputs 1 and 2 (mean, deviation) are for training; ``tidy`` takes their names away, so that none computes them.
    normed, _, _, total = torch.onnx.ops.symbolic_multi_out(
        f"{CONTRIB}::SkipSimplifiedLayerNormalization",
        [x_BSH, residual_BSH, weight_H],
        attrs={"epsilon": epsilon},
        dtypes=[x_BSH.dtype] * 4,
        shapes=[x_BSH.shape, [1], [1], x_BSH.shape],
        version=1,
    )
    return normed, total


def sigmoid_gate(x: Tensor, slope: float) -> Tensor:
    """``x * sigmoid(slope * x)``: SiLU at 1, QuickGELU at 1.702."""
    return torch.onnx.ops.symbolic(
        f"{CONTRIB}::QuickGelu", [x], attrs={"alpha": slope}, dtype=x.dtype, shape=x.shape, version=1
    )


def rotary(x_BSE: Tensor, cos_BSd: Tensor, sin_BSd: Tensor, heads: int) -> Tensor:
    """Rotate the halves of every head (not interleaved); d is ``D // 2``, E is ``heads * D``."""
    return torch.onnx.ops.symbolic(
        "::RotaryEmbedding",
        [x_BSE, cos_BSd, sin_BSd],
        attrs={"num_heads": heads, "interleaved": 0},
        dtype=x_BSE.dtype,
        shape=x_BSE.shape,
        version=OPSET,
    )


def grouped_attention(
    q_BSE: Tensor,
    k_BSF: Tensor | None,
    v_BSF: Tensor | None,
    past_k_BGTD: Tensor,
    past_v_BGTD: Tensor,
    seqlens_k_B: Tensor,
    total: Tensor,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
    bias_B1ST: Tensor | None = None,
    turns: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention that appends to its cache: ``(output, present keys, present values)``.

    Without ``k`` and ``v`` they stand behind the queries, [B, S, E + 2 F]. With ``turns``, cosine and sine [T, D // 2]
    of every place in the slot, queries and keys are turned as they are read: a token stands where its key is kept.

    ``bias`` over all keys that count is added before the softmax. The cache may be one buffer for past and present, of
    slot length T; then nothing is copied.
    """
    width = heads * past_k_BGTD.shape[3]
    tables: list[Tensor | None] = [] if turns is None else [*turns]
    if bias_B1ST is not None:
        tables = [*(tables or [None, None]), None, bias_B1ST]  # between them positions, which the kernel counts itself
    output, keys, values = torch.onnx.ops.symbolic_multi_out(
        f"{CONTRIB}::GroupQueryAttention",
        [q_BSE, k_BSF, v_BSF, past_k_BGTD, past_v_BGTD, seqlens_k_B, total, *tables],
        attrs={
            "num_heads": heads,
            "kv_num_heads": kv_heads,
            "scale": scale,
            **({} if turns is None else {"do_rotary": 1}),
        },
        dtypes=[q_BSE.dtype] * 3,
        shapes=[(*q_BSE.shape[:-1], width), past_k_BGTD.shape, past_v_BGTD.shape],
        version=1,
    )
    return output, keys, values


def attention(
    q_BSE: Tensor, k_BSE: Tensor, v_BSE: Tensor, bias_11SS: Tensor | None, *, heads: int, scale: float
) -> Tensor:
    """Attention of all positions to all, plus ``bias`` before the softmax, if any."""
    return torch.onnx.ops.symbolic(
        f"{CONTRIB}::MultiHeadAttention",
        [q_BSE, k_BSE, v_BSE, *([] if bias_11SS is None else [None, None, bias_11SS])],
        attrs={"num_heads": heads, "scale": scale},
        dtype=q_BSE.dtype,
        shape=q_BSE.shape,
        version=1,
    )


def mixture_of_experts(
    x_NH: Tensor, router_NE: Tensor, gate_up_EFH: Tensor, down_EHI: Tensor, *, chosen: int
) -> Tensor:
    """Each row through the ``chosen`` experts that its router values are highest for, weighted by their softmax.

    The weights of the chosen ones are made to sum to 1. Rows of ``gate_up`` alternate: gate, up, gate, up, …
    """
    return torch.onnx.ops.symbolic(
        f"{CONTRIB}::MoE",
        [x_NH, router_NE, gate_up_EFH, None, down_EHI, None],
        attrs={
            "k": chosen,
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "normalize_routing_weights": 1,
            "activation_alpha": 1.0,
            "activation_beta": 0.0,
        },
        dtype=x_NH.dtype,
        shape=x_NH.shape,
        version=1,
    )


def matmul_nbits(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
    *,
    inner: int,
    outer: int,
    bits: int,
    block: int,
    accuracy_level: int,
) -> Tensor:
    """``x @ dequantised(packed).T + bias``; layouts as in ``nbits.QLinear``. Without ``zeros`` they are the middle of
    all codes, which takes less time with each block."""
    inputs: list[Tensor | None] = [x, packed, scales, *([] if zeros is None else [zeros])]
    if bias is not None:
        inputs += [*([] if zeros is not None else [None]), None, bias]  # between them g_idx, which no kernel here needs
    return torch.onnx.ops.symbolic(
        f"{CONTRIB}::MatMulNBits",
        inputs,
        attrs={"K": inner, "N": outer, "bits": bits, "block_size": block, "accuracy_level": accuracy_level},
        dtype=x.dtype,
        shape=(*x.shape[:-1], outer),
        version=1,
    )


def gather_nbits(
    ids_BS: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor, *, hidden: int, bits: int, block: int
) -> Tensor:
    """Rows ``ids`` of a table that is stored block-wise in ``bits`` bits -> [B, S, hidden]."""
    return torch.onnx.ops.symbolic(
        f"{CONTRIB}::GatherBlockQuantized",
        [packed, ids_BS, scales, zeros],
        attrs={"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1},
        dtype=scales.dtype,
        shape=(*ids_BS.shape, hidden),
        version=1,
    )
