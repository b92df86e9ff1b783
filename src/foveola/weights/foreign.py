"""Packed matrices as other tools write them: AutoAWQ, GPTQ and compressed-tensors, read code for code.

All three hold whole-number codes, scales and zero points per group of inputs; they differ in which way the numbers lie
in 32-bit words. AutoAWQ (GEMM): words along the outputs, in the order 0 2 4 6 1 3 5 7. GPTQ: codes along the inputs,
zero points along the outputs and, in its first version, less by one. compressed-tensors (pack-quantized): codes along
the inputs, zero points along the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from foveola.exchange import Damaged, Unsupported
from foveola.weights.formats import BLOCKS, Format
from foveola.weights.packed import Grid, Packed, encoded, in_blocks

QUANTISATION = "quantization_config"
"""The entry of config.json."""
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Place in the word of output 0, 1, 2 ... of eight."""
_WHOLE = 128
"""The block that a scale per row or per matrix is spread over."""

Read = Callable[[str], Tensor]
"""Suffix of a tensor of the module (``qweight``) -> the tensor."""


def suffix_of(config: Mapping[str, Any]) -> str | None:
    """The ending of the tensor that marks a packed module, or None where ``config`` names no such format.

    Raises ``Unsupported`` for a method that is not read.
    """
    entry = config.get(QUANTISATION)
    if not entry:
        return None
    method = entry.get("quant_method")
    if method in ("awq", "gptq"):
        return "qweight"
    if method == "compressed-tensors" and entry.get("format") in ("pack-quantized", None):
        return "weight_packed"
    raise Unsupported(
        f"config.json has {QUANTISATION} of {method!r}, format {entry.get('format')!r}; read are awq, gptq and "
        "compressed-tensors with pack-quantized. Use the checkpoint with whole weights."
    )


def read_foreign(config: Mapping[str, Any], path: str, read: Read, has: Callable[[str], bool]) -> Packed:
    """The packed matrix of the module ``path``. Raises ``Unsupported`` or ``Damaged``."""
    entry: Mapping[str, Any] = config[QUANTISATION]
    method = entry["quant_method"]
    try:
        if method == "awq":
            codes, scales, zeros, bits = _awq(entry, read)
        elif method == "gptq":
            codes, scales, zeros, bits = _gptq(entry, path, read, has)
        else:
            codes, scales, zeros, bits = _compressed_tensors(entry, path, read, has)
        return _regrouped(codes, scales, zeros, bits, path)
    except (KeyError, TypeError, RuntimeError, IndexError):
        raise Damaged(
            f"the packed tensors of {path[:80]} and {QUANTISATION} in config.json do not fit one another. "
            "Copy the checkpoint again, whole."
        ) from None


Parts = tuple[Tensor, Tensor, Tensor, int]
"""Codes [N, K], scales fp32 [N, G], zeros [N, G], bits."""


def _awq(entry: Mapping[str, Any], read: Read) -> Parts:
    bits = int(entry.get("bits", 4))
    if bits != 4 or str(entry.get("version", "gemm")).lower() != "gemm":
        raise Unsupported(f"AutoAWQ with {bits} bits, version {entry.get('version')!r} is not read; expected 4, gemm.")
    codes, zeros = (_words(read(name), 4)[..., _AWQ_ORDER].flatten(1) for name in ("qweight", "qzeros"))
    return codes.t(), read("scales").float().t(), zeros.t(), 4


def _gptq(entry: Mapping[str, Any], path: str, read: Read, has: Callable[[str], bool]) -> Parts:
    bits = int(entry["bits"])
    _check_bits(bits)
    codes = _words(read("qweight").t(), bits).flatten(1)
    scales = read("scales").float().t()
    zeros = _words(read("qzeros"), bits).flatten(1)[:, : codes.shape[0]].t()
    if entry.get("checkpoint_format", "gptq") == "gptq":
        zeros = (zeros + 1) & (2**bits - 1)
    if has("g_idx"):
        order = read("g_idx")
        size = -(-codes.shape[1] // scales.shape[1])
        if not torch.equal(order.long(), torch.arange(codes.shape[1]) // size):
            raise Unsupported(
                f"{path} has its inputs in an order of its own (act-order), which MatMulNBits does not know. "
                "Quantise with desc_act off."
            )
    return codes, scales, zeros, bits


def _compressed_tensors(entry: Mapping[str, Any], path: str, read: Read, has: Callable[[str], bool]) -> Parts:
    rows, inner = (int(n) for n in read("weight_shape"))
    words = read("weight_packed")
    bits = {_count(inner, b): b for b in (8, 4)}.get(words.shape[1])
    known = {int(group["weights"]["num_bits"]) for group in entry["config_groups"].values()}
    if bits is None or bits not in known:
        raise Unsupported(f"{path} is packed with {sorted(known)} bits; read are 4 and 8.")
    if has("weight_g_idx"):
        raise Unsupported(f"{path} has its inputs in an order of its own (actorder), which MatMulNBits does not know.")
    codes = _words(words, bits).flatten(1)[:, :inner]
    scales = read("weight_scale").float().view(rows, -1)
    if has("weight_zero_point"):
        zeros = _words(read("weight_zero_point").t(), bits).flatten(1)[:, :rows].t()
    else:
        zeros = torch.full_like(scales, 2 ** (bits - 1))
    return codes, scales, zeros, bits


def _count(inner: int, bits: int) -> int:
    return -(-inner * bits // 32)


def _check_bits(bits: int) -> None:
    if bits not in (4, 8):
        raise Unsupported(f"the checkpoint is packed with {bits} bits; read are 4 and 8.")


def _words(packed: Tensor, bits: int) -> Tensor:
    """int32 words [..., W] as whole numbers [..., W, 32/bits], lowest bits first."""
    shifts = torch.arange(0, 32, bits)
    numbers: Tensor = (packed.long()[..., None] >> shifts) & (2**bits - 1)
    return numbers


def _regrouped(codes_NK: Tensor, scales_NG: Tensor, zeros_NG: Tensor, bits: int, path: str) -> Packed:
    """As ``Packed``; a scale for more inputs than a block can have is written down for each of its blocks."""
    inner = codes_NK.shape[1]
    groups = scales_NG.shape[1]
    size = -(-inner // groups)
    block = size if size in BLOCKS and groups * size >= inner else _WHOLE
    if block != size:
        if groups > 1 and size % block:
            raise Unsupported(f"{path} has groups of {size}; blocks of {', '.join(map(str, BLOCKS))} are known.")
        repeat = -(-inner // block) if groups == 1 else size // block
        scales_NG, zeros_NG = (part.repeat_interleave(repeat, 1) for part in (scales_NG, zeros_NG))
    blocks = in_blocks(codes_NK.float(), block)
    grid = Grid(scales_NG.float(), zeros_NG.float(), bits)
    return encoded(blocks, grid, inner, Format(bits, block))
