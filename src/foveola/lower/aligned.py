"""A graph's file in which every constant begins on a 128-bit boundary, so that it can be used where it lies.

Protocol buffers know no alignment. But a reader takes the parts of a message in any order and joins a message that
comes in two parts, so that the constants can follow behind everything else, each after as many bytes of its own
(ignored) comment as are lacking to the next boundary. Every reader of ONNX reads such a file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

ALIGNMENT = 16
# Tags of protocol buffers: field number << 3 | 2 (length follows).
_GRAPH, _INITIALIZER, _COMMENT = 7 << 3 | 2, 5 << 3 | 2, 12 << 3 | 2
_WIDE = 5
"""Bytes of a length that is written before it is known; longer than needed is allowed."""


def save_aligned(model: ir.Model, path: Path) -> None:
    """Write ``model`` to ``path`` in one file, constants on boundaries of ``ALIGNMENT`` bytes."""
    proto = ir.to_proto(model)
    tensors = list(proto.graph.initializer)
    del proto.graph.initializer[:]
    head = proto.SerializeToString(deterministic=True)
    with path.open("wb") as file:
        file.write(head)
        file.write(bytes([_GRAPH]))
        length_at = file.tell()
        file.write(b"\0" * _WIDE)
        begin = file.tell()
        for tensor in tensors:
            file.write(_placed(tensor, file.tell()))
        size = file.tell() - begin
        file.seek(length_at)
        file.write(_varint(size, _WIDE))


def _placed(tensor: onnx.TensorProto, at: int) -> bytes:
    """The constant as part of a graph at the offset ``at`` of the file, its data on a boundary."""
    tensor.ClearField("doc_string")  # the comment is ours; then the data is what the message ends with
    body: bytes = tensor.SerializeToString(deterministic=True)
    before = len(body) - len(tensor.raw_data)
    for lacking in range(ALIGNMENT + 3):
        comment = b"" if not lacking else bytes([_COMMENT]) + _varint(lacking - 1) + b" " * (lacking - 1)
        length = _varint(len(comment) + len(body), _WIDE)
        if (at + 1 + _WIDE + len(comment) + before) % ALIGNMENT == 0:
            return bytes([_INITIALIZER]) + length + comment + body
    raise AssertionError("some number of spaces always reaches the next boundary")


def _varint(number: int, width: int = 0) -> bytes:
    """``number`` as a varint, in ``width`` bytes where that is given."""
    out = bytearray()
    while number > 0x7F or len(out) + 1 < width:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class Constant:
    """Where a constant's data lies in the file: ``offset`` in bytes, and ``row`` bytes from one row to the next."""

    name: str
    offset: int
    row: int

    @property
    def aligned(self) -> bool:
        """Whether it begins on a boundary, and so do all its rows."""
        return self.offset % ALIGNMENT == 0 and self.row % ALIGNMENT == 0


def constants(path: Path) -> list[Constant]:
    """The constants of the graph in ``path`` where its bytes say that they are; nothing is loaded.

    A row is what follows from one index of the first axis to the next: of a packed matrix [N, blocks, bytes] it has
    ``blocks · bytes``. Constants that lie in another file are left out.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        return [
            found
            for field, begin, end in _fields(raw, 0, len(raw))
            if field == 7
            for part, first, last in _fields(raw, begin, end)
            if part == 5 and (found := _constant(raw, first, last)) is not None
        ]


def _constant(raw: mmap.mmap, begin: int, end: int) -> Constant | None:
    name, offset, size, rows = "", 0, 0, 1
    dims: list[int] = []
    for field, first, last in _fields(raw, begin, end):
        if field == 1:  # one number, or several in one field
            at = first
            while at < last:
                number, at = _number(raw, at)
                dims.append(number)
        elif field == 8:
            name = raw[first:last].decode("utf-8")
        elif field == 9:
            offset, size = first, last - first
    if len(dims) > 1:
        rows = max(1, dims[0])
    return Constant(name, offset, size // rows) if size else None


def _fields(raw: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, begin, end) of the fields of a message: of its content where a length stands before it."""
    while at < end:
        tag, at = _number(raw, at)
        kind = tag & 7
        begin = at
        if kind == 0:
            _, at = _number(raw, at)
        elif kind == 2:
            length, begin = _number(raw, at)
            at = begin + length
        else:
            at += {1: 8, 5: 4}[kind]
        yield tag >> 3, begin, at


def _number(raw: mmap.mmap, at: int) -> tuple[int, int]:
    """A varint and where it ends."""
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
