"""The constants of an ONNX file, listed and overwritten without the onnx package.

A file is a protobuf message; only the few fields that are needed are looked at, everything else is skipped by its
length (https://protobuf.dev/programming-guides/encoding, onnx.proto3: ModelProto.graph = 7, GraphProto.initializer = 5,
TensorProto.dims = 1, data_type = 2, name = 8, raw_data = 9). A constant of the same type and shape takes the same
bytes, so other weights are written over the old ones in place.

``SessionOptions.add_initializer`` would be the way without that, but it comes too late: what the runtime computes from
constants when it loads a graph (weights that are stored in 16 bits and widened) it computes from the file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foveola.exchange import Damaged

_GRAPH, _INITIALIZER, _DIMS, _DATA_TYPE, _NAME, _RAW = 7, 5, 1, 2, 8, 9
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
    """Type (None for one that numpy does not know) and shape of one constant, and where its bytes lie in the file
    (None where they are elsewhere)."""

    dtype: np.dtype[np.generic] | None
    shape: tuple[int, ...]
    span: slice | None = field(default=None, compare=False)


def read_initializers(data: bytes, file: str) -> dict[str, Initializer]:
    """Name -> constant, for the main graph of an ONNX file's bytes. Raises ``Damaged`` naming the ``file``."""
    try:
        return dict(_of_model(memoryview(data), _address(data)))
    except (ValueError, IndexError):  # UnicodeDecodeError is a ValueError
        raise Damaged(f"{file} cannot be read as an ONNX graph; compile the bundle anew.") from None


def overwritten(data: bytes, file: str, constants: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """The bytes of an ONNX file with other content in these constants. Raises ``Damaged`` where one is not in it, or
    is of another type or shape."""
    present = read_initializers(data, file)
    copy = bytearray(data)
    for name, array in constants.items():
        there = present.get(name)
        if there is None or there.span is None or there != Initializer(array.dtype, array.shape):
            raise Damaged(f"{file}: the constant {name} cannot be overwritten; compile the bundle anew.")
        content = np.ascontiguousarray(array).tobytes()
        if len(content) != there.span.stop - there.span.start:
            raise Damaged(f"{file}: the constant {name} does not take the bytes that its shape needs.")
        copy[there.span] = content
    return bytes(copy)


def _address(data: bytes | memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0]) if len(data) else 0


def _of_model(model: memoryview, begin: int) -> Iterator[tuple[str, Initializer]]:
    for number, graph, _ in fields(model):
        if number == _GRAPH and isinstance(graph, memoryview):
            for inner, tensor, _ in fields(graph):
                if inner == _INITIALIZER and isinstance(tensor, memoryview):
                    yield _of_tensor(tensor, begin)


def _of_tensor(tensor: memoryview, begin: int) -> tuple[str, Initializer]:
    name, kind, dims, span = "", 0, [], None
    for number, value, _ in fields(tensor):
        if isinstance(value, int):
            if number == _DATA_TYPE:
                kind = value
            elif number == _DIMS:
                dims.append(value)
        elif number == _NAME:
            name = bytes(value).decode()
        elif number == _RAW and len(value):
            start = _address(value) - begin
            span = slice(start, start + len(value))
        elif number == _DIMS:  # packed
            at = 0
            while at < len(value):
                size, at = _varint(value, at)
                dims.append(size)
    dtype = _DTYPES.get(kind)
    return name, Initializer(None if dtype is None else np.dtype(dtype), tuple(dims), span)


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview, int]]:
    """Every field's number, its content (a number, or the bytes of a nested message) and where in ``message`` that
    begins. Fields of other kinds are passed over. Raises ``ValueError`` or ``IndexError`` for what is no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            begin = at
            value, at = _varint(message, at)
            yield number, value, begin
        elif kind == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field reaches beyond its message")
            yield number, message[at : at + size], at
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
