"""Tensors of a checkpoint, read one by one under the names of the model's modules; packed matrices on disk.

The own packed form: for a matrix of the module ``path`` three tensors hold what ``packed.Packed`` holds, bit for bit,

    path.weight_values  uint8   [N, ceil(K/block), block*bits/8]
    path.weight_scales  float16 [N, ceil(K/block)]
    path.weight_zeros   uint8   [N, ceil(ceil(K/block)*bits/8)]

and config.json's ``foveola_packed`` says ``{path: {"bits": 4, "block": 32, "inner": K}}``. MatMulNBits stores its
codes so, so that a compilation copies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from foveola.artifact import Checkpoint
from foveola.exchange import Damaged
from foveola.weights.formats import Format
from foveola.weights.packed import Packed

PACKED = "foveola_packed"
"""The entry of config.json."""
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def read_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    """The tensor stored as ``name``, in the dtype of the file; only its own bytes are read. Raises ``Damaged``."""
    info = checkpoint.tensors.get(name)
    if info is None:
        raise Damaged(f"the checkpoint {checkpoint.name} lacks the tensor {name[:80]!r}. Copy it again, whole.")
    if info.dtype not in _DTYPES:
        raise Damaged(f"{info.file}: the tensor {name[:80]!r} is {info.dtype}; expected one of {', '.join(_DTYPES)}.")
    with checkpoint.file(info.file).open("rb") as stream:
        stream.seek(info.start)
        raw = bytearray(info.bytes)
        held = stream.readinto(raw)
    if held != info.bytes:
        raise Damaged(f"{info.file} is truncated. Copy the checkpoint again, whole.")
    if not raw:
        return torch.empty(info.shape, dtype=_DTYPES[info.dtype])
    return torch.frombuffer(raw, dtype=_DTYPES[info.dtype]).view(info.shape)


def packed_formats(config: Mapping[str, Any]) -> dict[str, tuple[Format, int]]:
    """Path -> (format, K) of every packed matrix, from config.json. Raises ``Damaged`` where it is malformed."""
    table = config.get(PACKED, {})
    try:
        return {
            str(path): (Format(int(entry["bits"]), int(entry["block"])), int(entry["inner"]))
            for path, entry in table.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Damaged(
            f"config.json: {PACKED} gives bits, block and inner for the path of every packed matrix. "
            "Copy config.json again, whole."
        ) from None


def read_packed(checkpoint: Checkpoint, path: str, form: Format, inner: int) -> Packed:
    """The packed matrix of the module ``path``. Raises ``Damaged`` where its tensors do not fit one another."""
    values, scales, zeros = (read_tensor(checkpoint, f"{path}.weight_{part}") for part in ("values", "scales", "zeros"))
    blocks = -(-inner // form.block)
    rows = values.shape[0]
    expected = ((rows, blocks, form.block * form.bits // 8), (rows, blocks), (rows, -(-blocks * form.bits // 8)))
    if tuple(tuple(part.shape) for part in (values, scales, zeros)) != expected:
        raise Damaged(f"the packed tensors of {path[:80]} do not have the sizes that config.json says.")
    return Packed(values, scales.float(), zeros, inner, form)


def packed_tensors(path: str, packed: Packed) -> dict[str, Tensor]:
    """The three tensors that hold ``packed`` on disk."""
    return {
        f"{path}.weight_values": packed.values.contiguous(),
        f"{path}.weight_scales": packed.scales.half().contiguous(),
        f"{path}.weight_zeros": packed.zeros.contiguous(),
    }


def packed_entry(packed: Packed) -> dict[str, int]:
    """What config.json's ``foveola_packed`` says about it."""
    return {"bits": packed.format.bits, "block": packed.format.block, "inner": packed.inner}
