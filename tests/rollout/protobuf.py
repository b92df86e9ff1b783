"""Kubernetes' protobuf of a Secret, which is how helm writes its releases; read by hand, since nothing else comes so.

Field numbers are those of k8s.io/api/core/v1/generated.proto and apimachinery's meta/v1 and runtime.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import Any

MAGIC = b"k8s\0"


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> dict[int, list[bytes | int]]:
    """The fields of a message by number; lengths and varints only."""
    found: dict[int, list[bytes | int]] = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        value, at = _number(data, at)
        if tag & 7 == 2:
            found[tag >> 3].append(data[at : at + value])
            at += value
        else:
            assert tag & 7 == 0, "an unexpected wire type"
            found[tag >> 3].append(value)
    return found


def _text(message: dict[int, list[bytes | int]], number: int) -> str:
    value = message.get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value.decode()


def _map(entries: list[bytes | int]) -> dict[str, bytes]:
    found = {}
    for entry in entries:
        assert isinstance(entry, bytes)
        pair = fields(entry)
        value = pair.get(2, [b""])[0]
        assert isinstance(value, bytes)
        found[_text(pair, 1)] = value
    return found


def secret(body: bytes) -> dict[str, Any]:
    """A Secret as JSON has it. Fails for any other kind."""
    unknown = fields(body.removeprefix(MAGIC))
    kind, raw = unknown[1][0], unknown[2][0]
    assert isinstance(kind, bytes)
    assert isinstance(raw, bytes)
    assert _text(fields(kind), 2) == "Secret", "only Secrets come as protobuf"
    message = fields(raw)
    head = message[1][0]
    assert isinstance(head, bytes)
    metadata = fields(head)
    labels = {name: value.decode() for name, value in _map(metadata.get(11, [])).items()}
    data = {name: base64.b64encode(value).decode() for name, value in _map(message.get(2, [])).items()}
    return {
        "apiVersion": "v1", "kind": "Secret", "type": _text(message, 3), "data": data,
        "metadata": {"name": _text(metadata, 1), "namespace": _text(metadata, 3), "labels": labels},
    }  # fmt: skip
