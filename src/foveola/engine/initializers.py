"""The constants of an ONNX file, listed without the onnx package: names, types, shapes.

A file is a protobuf message; only the few fields that are needed are looked at, everything else is skipped by its
length (https://protobuf.dev/programming-guides/encoding, onnx.proto3: ModelProto.graph = 7, GraphProto.initializer = 5,
TensorProto.dims = 1, data_type = 2, name = 8).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foveola.exchange import Damaged

_GRAPH, _INITIALIZER, _DIMS, _DATA_TYPE, _NAME = 7, 5, 1, 2, 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DTYPES = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
}


@dataclass(frozen=True, slots=True)
class Initializer:
    """Type (None for one that numpy does not know) and shape of one constant."""

    dtype: np.dtype[np.generic] | None
    shape: tuple[int, ...]


def read_initializers(data: bytes, file: str) -> dict[str, Initializer]:
    """Name -> constant, for the main graph of an ONNX file's bytes. Raises ``Damaged`` naming the ``file``."""
    try:
        return dict(_of_model(memoryview(data)))
    except (ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        raise Damaged(f"{file} cannot be read as an ONNX graph; compile the bundle anew.") from None


def _of_model(model: memoryview) -> Iterator[tuple[str, Initializer]]:
    for field, graph in _fields(model):
        if field == _GRAPH and isinstance(graph, memoryview):
            for inner, tensor in _fields(graph):
                if inner == _INITIALIZER and isinstance(tensor, memoryview):
                    yield _of_tensor(tensor)


def _of_tensor(tensor: memoryview) -> tuple[str, Initializer]:
    name, kind, dims = "", 0, []
    for field, value in _fields(tensor):
        if isinstance(value, int):
            if field == _DATA_TYPE:
                kind = value
            elif field == _DIMS:
                dims.append(value)
        elif field == _NAME:
            name = bytes(value).decode()
        elif field == _DIMS:  # packed
            at = 0
            while at < len(value):
                size, at = _varint(value, at)
                dims.append(size)
    dtype = _DTYPES.get(kind)
    return name, Initializer(None if dtype is None else np.dtype(dtype), tuple(dims))


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and content of every field: a number, or the bytes of a nested one. Others are passed over."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield field, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field reaches beyond its message")
            yield field, message[at : at + size]
            at += size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("an unknown kind of field")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
