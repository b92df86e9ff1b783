"""What a malicious node sends instead of its update: well formed, so that only aggregation can help."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from foveola.learn.federate.codec import compress
from foveola.learn.federate.wire import Update, pack, unpack

ATTACKS = ("flip", "scale", "noise")
FLIPPED, SCALED, NOISE_NORM = 20.0, 100.0, 100.0


def poison(data: bytes, attack: str, keep: float, rng: np.random.Generator) -> bytes:
    """The bytes of an update, poisoned: ``flip`` sends the opposite, 20 times; ``scale`` sends it 100 times;
    ``noise`` sends Gaussian noise with a norm of 100."""
    update = cast(Update, unpack(data))
    sparse = update.sparse
    if attack == "flip":
        sparse = replace(sparse, levels=-sparse.levels, scale=float(np.float32(sparse.scale * FLIPPED)))
    elif attack == "scale":
        sparse = replace(sparse, scale=float(np.float32(sparse.scale * SCALED)))
    elif attack == "noise":
        noise = rng.standard_normal(sparse.size).astype(np.float32)
        sparse = compress(noise, keep)
        sparse = replace(sparse, scale=float(np.float32(sparse.scale * NOISE_NORM / sparse.norm)))
    else:
        raise ValueError(f"an attack is one of {', '.join(ATTACKS)}, not {attack!r}")
    return pack(replace(update, sparse=sparse))
