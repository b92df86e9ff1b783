"""The quantised layout that NVIDIA's builders read: ModelOpt's unified Hugging Face checkpoint, W4A16_AWQ.

Per matrix ``weight`` uint8 [N/2, K], two output rows in a byte, the even one in the low half; ``weight_scale`` fp32
[N, K/128], of values that 16 bits hold; ``pre_quant_scale`` fp16 [K] where no norm stands before the matrix that could
take it over. Values are signed 4-bit, -8..7, without a zero point. Everything else is fp16 under its own name.
(``bench/k2_layouts.py`` holds all this against what ``modelopt.torch.export`` writes of the same model.)
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 128
_TOP = 7


def quantise(weight_NK: Tensor) -> tuple[Tensor, Tensor]:
    """Signed 4-bit values int8 [N, K] and scales fp16 [N, K/128]: nearest, each group by its largest value."""
    rows, inner = weight_NK.shape
    groups = weight_NK.float().view(rows, inner // GROUP, GROUP)
    scale = (groups.abs().amax(dim=-1) / _TOP).clamp(min=2.0**-14).half()
    values = (groups / scale.float()[..., None]).round().clamp(-_TOP - 1, _TOP).to(torch.int8)
    return values.view(rows, inner), scale


def pack(values_NK: Tensor) -> Tensor:
    """int8 [N, K] in -8..7 -> uint8 [N/2, K]."""
    even, odd = values_NK[0::2] & 15, values_NK[1::2] & 15
    return (even | (odd << 4)).view(torch.uint8).contiguous()


def unpack(packed: Tensor) -> Tensor:
    """The inverse of ``pack``."""
    halves = torch.stack((packed & 15, packed >> 4), dim=1).to(torch.int8)
    return torch.where(halves > _TOP, halves - 16, halves).flatten(0, 1)


def stored(name: str, weight_NK: Tensor, *, behind_norm: bool) -> tuple[dict[str, Tensor], float]:
    """The tensors that stand for the matrix ``name``.weight, and how far they are from it (relative L2)."""
    values, scale = quantise(weight_NK)
    back = values.float().view(*scale.shape, GROUP) * scale.float()[..., None]
    error = float((back.flatten(1) - weight_NK.float()).norm() / weight_NK.float().norm().clamp(min=1e-30))
    made = {f"{name}.weight": pack(values), f"{name}.weight_scale": scale.float()}
    if not behind_norm:
        made[f"{name}.pre_quant_scale"] = torch.ones(weight_NK.shape[1], dtype=torch.float16)
    return made, error


def description(excluded: list[str]) -> dict[str, object]:
    """hf_quant_config.json."""
    return {
        "producer": {"name": "foveola"},
        "quantization": {
            "quant_algo": "W4A16_AWQ",
            "kv_cache_quant_algo": None,
            "group_size": GROUP,
            "has_zero_point": False,
            "pre_quant_scale": True,
            "exclude_modules": excluded,
        },
    }
