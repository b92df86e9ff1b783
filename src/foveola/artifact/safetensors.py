"""Headers of safetensors files, read without torch and without trust.

Format: 8 bytes little-endian length of a JSON header, the header, then the tensors' bytes back to back
(https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.artifact.seal import parse_json
from foveola.exchange import Damaged

MAX_HEADER_BYTES = 100_000_000
"""The bound of the reference implementation."""

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: ``file`` (relative name), ``start`` (byte offset in that file) and its size in bytes."""

    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    bytes: int


def read_header(root: Path, relative: str) -> dict[str, TensorInfo]:
    """Names, dtypes and shapes of the tensors in the file ``relative`` of ``root``, in the order of their bytes.

    Every figure of the header is held against the real size of the file: lengths, offsets without gaps or overlap,
    and shape times dtype against the bytes. Raises Damaged naming the file.
    """
    try:
        with (root / relative).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
                raise Damaged(f"{relative} is truncated or no safetensors file: no header fits into {size} bytes.")
            raw = stream.read(length)
    except FileNotFoundError:
        raise Damaged(f"{relative} is missing.") from None
    except OSError as error:
        raise Damaged(f"{relative} cannot be read: {error.strerror or 'input/output error'}.") from None
    header = parse_json(raw, f"The header of {relative}")
    header.pop("__metadata__", None)
    return _check_layout(header, relative, data_start=8 + length, data_bytes=size - 8 - length)


def _check_layout(header: dict[str, Any], relative: str, *, data_start: int, data_bytes: int) -> dict[str, TensorInfo]:
    spans: list[tuple[int, int, str, TensorInfo]] = []
    for name, entry in header.items():
        parsed = _parse_entry(entry)
        if parsed is None:
            raise Damaged(f"{relative}: dtype, shape and offsets of the tensor {name[:80]!r} do not agree.")
        dtype, shape, start, end = parsed
        spans.append((start, end, name, TensorInfo(dtype, shape, relative, data_start + start, end - start)))
    spans.sort(key=lambda span: span[:2])
    expected = 0
    for start, end, name, _ in spans:
        if start != expected:
            raise Damaged(f"{relative}: the bytes of the tensor {name[:80]!r} overlap another's or leave a gap.")
        expected = end
    if expected != data_bytes:
        word = "truncated" if expected > data_bytes else "too long"
        raise Damaged(f"{relative} is {word}: its tensors need {expected} bytes, it has {data_bytes}.")
    return {name: info for _, _, name, info in spans}


def _parse_entry(entry: object) -> tuple[str, tuple[int, ...], int, int] | None:
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in _BITS or shape is None or offsets is None or len(offsets) != 2:
        return None
    bits = _BITS[dtype]
    for size in shape:
        bits *= size
    start, end = offsets
    if bits % 8 or end - start != bits // 8:
        return None
    return dtype, shape, start, end


def _sizes(value: Any) -> tuple[int, ...] | None:
    # 2**53 keeps the product of hostile dimensions small enough to be cheap; no real size comes near it.
    if isinstance(value, list) and len(value) <= 16 and all(type(v) is int and 0 <= v < 2**53 for v in value):
        return tuple(value)
    return None
