"""Pictures stay: every byte that crosses the wire in a federation, both ways, is searched for what the nodes hold."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from foveola.learn.federate.node import Node
from foveola.learn.federate.options import FederationOptions
from foveola.learn.federate.problem import Problem, normalised
from foveola.learn.federate.rounds import Federation

NODES, PICTURES, SIDE = 4, 6, 24
Crossed = tuple[set[bytes], list[np.ndarray]]
WINDOW = 8  # bytes: shorter runs occur by chance in kilobytes of compressed numbers


def drawn(seed: int) -> tuple[bytes, np.ndarray]:
    """A picture as a file, and its pixels."""
    pixels = np.random.default_rng(seed).integers(0, 255, (SIDE, SIDE, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue(), pixels


def windows(data: bytes) -> set[bytes]:
    """Stretches of bytes that are not mostly zeros, of which every format is full."""
    every = {data[at : at + WINDOW] for at in range(len(data) - WINDOW + 1)}
    return {one for one in every if one.count(0) <= WINDOW // 2}


@pytest.fixture(scope="module")
def wire() -> Crossed:
    """Windows of all messages of six rounds, and the pixels of each node. The features are the pixels themselves, so
    that no tower hides them."""
    agreed = FederationOptions(width=SIDE * SIDE, keep=0.05)
    pixels = [np.stack([drawn(100 * node + n)[1] for n in range(PICTURES)]) for node in range(NODES)]
    labels = [np.random.default_rng(node).integers(0, 16, PICTURES) for node in range(NODES)]
    features = [normalised(own[..., 0].reshape(PICTURES, -1).astype(np.float32)) for own in pixels]
    nodes = [Node(n + 1, Problem().on(features[n], labels[n], 10), agreed) for n in range(NODES)]
    federation, seen = Federation.create(agreed), set[bytes]()
    for _ in range(6):
        for node in nodes:
            messages = federation.messages_for(node.known)
            node.receive(messages)
            update = node.train()
            federation.accept(node.number, update)
            seen |= set().union(*map(windows, [*messages, update]))
        federation.close()
    return seen, pixels


def test_the_search_would_find_what_is_there(wire: Crossed) -> None:
    seen, _ = wire
    assert b"FVPU\x01" in b"".join(sorted(one for one in seen if one.startswith(b"FVPU")))
    assert len(seen) > 10_000


def test_no_file_no_pixel_and_no_feature_is_in_what_crossed(wire: Crossed) -> None:
    seen, pixels = wire
    for node in range(NODES):
        for n in range(PICTURES):
            file, _ = drawn(100 * node + n)
            assert not windows(file[33:]) & seen  # behind the header that all PNG files share
            assert not windows(pixels[node][n].tobytes()) & seen
        plain = pixels[node][..., 0].reshape(PICTURES, -1).astype(np.float32)
        unit = normalised(plain)
        for values in (
            plain,
            unit,
            plain.astype(np.float16),
            unit.astype(np.float16),
            np.rint(unit * 127).astype(np.int8),
        ):
            for row in values:
                assert not windows(row.tobytes()) & seen
