"""Just enough of the protobuf wire format to make a graph's fixed input size a free one.

The face detector is published with an input of ``[10, 3, 32, 32]`` although its graph takes any size; ONNX Runtime
holds it to that. Dropping the shapes of inputs and outputs frees it. The edge has no onnx package, so the bytes are
edited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_GRAPH, _INPUT, _OUTPUT, _VALUE_INFO = 7, 11, 12, 13  # of ModelProto; of GraphProto
_TYPE, _TENSOR, _SHAPE = 2, 1, 2  # of ValueInfoProto; of TypeProto; of TypeProto.Tensor
_BYTES = 2  # the wire type of nested messages
_FIXED = {1: 8, 5: 4}

Edit = Callable[[bytes], bytes]


def without_shapes(model: bytes) -> bytes:
    """The ONNX ``model`` without the shapes of its inputs, outputs and inner values. ValueError for other bytes."""
    for field in (_INPUT, _OUTPUT, _VALUE_INFO):
        model = _edited(model, (_GRAPH, field, _TYPE, _TENSOR), lambda tensor: _without(tensor, _SHAPE))
    return model


def _edited(message: bytes, path: Sequence[int], edit: Edit) -> bytes:
    """``message`` with ``edit`` applied to every nested message at ``path``."""
    if not path:
        return edit(message)
    parts = []
    for field, kind, head, payload in _fields(message):
        if field == path[0] and kind == _BYTES:
            payload = _edited(payload, path[1:], edit)
            parts += [_varint(field << 3 | kind), _varint(len(payload)), payload]
        else:
            parts += [head, payload]
    return b"".join(parts)


def _without(message: bytes, unwanted: int) -> bytes:
    return b"".join(head + payload for field, _, head, payload in _fields(message) if field != unwanted)


def _fields(message: bytes) -> list[tuple[int, int, bytes, bytes]]:
    """(field, wire type, the bytes before the payload, the payload) of each field, in order."""
    found, at = [], 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == 0:
            end = _read_varint(message, at)[1]
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            end = at + size
        elif kind in _FIXED:
            end = at + _FIXED[kind]
        else:
            raise ValueError("not a protobuf message")
        if end > len(message):
            raise ValueError("a protobuf message is cut off")
        found.append((key >> 3, kind, message[start:at], message[at:end]))
        at = end
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a protobuf number is cut off")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
