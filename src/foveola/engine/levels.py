"""The products of a graph file at another accuracy level: the same constants, computed another way.

MatMulNBits at level 4 rounds what it multiplies to 8 bits, which is quick for one row; at level 1 it widens a block of
weights and multiplies in fp32, which is quicker for many rows where the CPU has no dot products of 8 bits. A session at
each level is two layouts of one set of weights (``sessions.py``), and takes no second file.

Of the file only the level is written anew, one byte per product (onnx.proto3: ModelProto.graph = 7, GraphProto.node =
1, NodeProto.op_type = 4, attribute = 5, AttributeProto.name = 1, i = 3).
"""

from __future__ import annotations

from collections.abc import Iterator

from foveola.engine.initializers import fields
from foveola.exchange import Damaged

LEVELS = (0, 1, 4)
_GRAPH, _NODE, _OPERATOR, _ATTRIBUTE, _NAME, _NUMBER = 7, 1, 4, 5, 1, 3
_ONE_BYTE = 128


def at_level(data: bytes, file: str, level: int) -> bytes:
    """The bytes of an ONNX file with every MatMulNBits at ``level``, one of ``LEVELS``. Raises ``Damaged`` naming the
    ``file`` where it is no graph or has no such product."""
    copy = bytearray(data)
    try:
        places = list(_places(memoryview(data)))
    except (ValueError, IndexError):
        raise Damaged(f"{file} cannot be read as an ONNX graph; compile the bundle anew.") from None
    if not places:
        raise Damaged(f"{file} has no product whose accuracy level could be {level}; measure the plan anew.")
    for place in places:
        copy[place] = level
    return bytes(copy)


def _places(model: memoryview) -> Iterator[int]:
    """Where the levels are."""
    for number, graph, graph_at in fields(model):
        if number != _GRAPH or not isinstance(graph, memoryview):
            continue
        for inner, node, node_at in fields(graph):
            if inner == _NODE and isinstance(node, memoryview):
                place = _level_of(node)
                if place is not None:
                    yield graph_at + node_at + place


def _level_of(node: memoryview) -> int | None:
    """Where in a node its level is; None where it is another operator, or does not say its level."""
    operator, place = b"", None
    for number, value, at in fields(node):
        if not isinstance(value, memoryview):
            continue
        if number == _OPERATOR:
            operator = bytes(value)
        elif number == _ATTRIBUTE:
            inside = list(fields(value))
            if any(n == _NAME and isinstance(v, memoryview) and bytes(v) == b"accuracy_level" for n, v, _ in inside):
                found = [begin for n, v, begin in inside if n == _NUMBER and isinstance(v, int) and v < _ONE_BYTE]
                place = at + found[0] if found else None
    return place if operator == b"MatMulNBits" else None
