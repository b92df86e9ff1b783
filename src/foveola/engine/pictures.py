"""The pictures of one request, one by one: each is encoded apart, and known again by what the vision graph would read.

A picture's name is a digest over all the arrays that go into the graph for it: resized, normalised pixels, positions,
shapes. So it covers the pixels, the size, the mode and the preprocessing by being what they result in; the weights are
added where features are kept (``Version.vision``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from foveola.intake.geometry import Packed


@dataclass(frozen=True, slots=True, eq=False)
class EncoderInput:
    """One picture for the vision graph. ``name`` is a digest of everything in ``packed``."""

    name: bytes
    packed: Packed


def one_by_one(packed: Packed | None) -> tuple[EncoderInput, ...]:
    """The pictures of a request apart, in order."""
    if packed is None:
        return ()
    if packed.apart:
        return tuple(EncoderInput(_name(part), part) for part in packed.apart)
    last = int(packed.segment_ids[-1]) if len(packed.segment_ids) else -1
    if last == 0:
        return (EncoderInput(_name(packed), packed),)
    bounds = np.searchsorted(packed.segment_ids, np.arange(last + 2))
    inputs = []
    for picture, (start, end) in enumerate(pairwise(bounds)):
        part = replace(
            packed,
            pixel_values=packed.pixel_values[start:end],
            position_ids=packed.position_ids[start:end],
            segment_ids=np.zeros(end - start, np.int64),
            grids=packed.grids[picture : picture + 1],
            images=packed.images[picture : picture + 1],
            others={name: array[start:end] for name, array in packed.others.items()},
        )
        inputs.append(EncoderInput(_name(part), part))
    return tuple(inputs)


def _name(packed: Packed) -> bytes:
    digest = blake2b(digest_size=32)
    for name, array in packed.feeds().items():
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.digest()
