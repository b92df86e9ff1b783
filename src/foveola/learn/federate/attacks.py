"""What a malicious node sends instead of its update: well formed, so that only aggregation can help.

``flip`` is the sign-flipping attack (Li et al.: "RSA", AAAI 2019). ``scale`` is scaled model poisoning (Bhagoji et al.,
ICML 2019; Bagdasaryan et al., AISTATS 2020): the node trains towards a goal of its own, here with every label shifted
to the next class, and boosts what it sends. ``boost`` boosts an honest update. ``noise`` is a Gaussian node (Blanchard
et al., NeurIPS 2017).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from foveola.artifact.prompt import ROWS
from foveola.learn.federate.codec import compress
from foveola.learn.federate.problem import Labels
from foveola.learn.federate.wire import Update, pack, unpack

ATTACKS = ("flip", "scale", "noise", "boost")
FLIPPED, SCALED, NOISE_NORM = 20.0, 100.0, 100.0


def wrong(labels: Labels, attack: str) -> Labels:
    """The labels int64 ``[N]`` that a malicious node trains on."""
    return (labels + 1) % ROWS if attack == "scale" else labels


def poison(data: bytes, attack: str, keep: float, rng: np.random.Generator) -> bytes:
    """The bytes of an update, poisoned: ``flip`` sends the opposite, 20 times; ``scale`` and ``boost`` send it
    100 times (``scale`` trained on wrong labels before); ``noise`` sends Gaussian noise with a norm of 100."""
    update = cast(Update, unpack(data))
    sparse = update.sparse
    if attack == "flip":
        sparse = replace(sparse, levels=-sparse.levels, scale=float(np.float32(sparse.scale * FLIPPED)))
    elif attack in ("scale", "boost"):
        sparse = replace(sparse, scale=float(np.float32(sparse.scale * SCALED)))
    elif attack == "noise":
        noise = rng.standard_normal(sparse.size).astype(np.float32)
        sparse = compress(noise, keep)
        sparse = replace(sparse, scale=float(np.float32(sparse.scale * NOISE_NORM / sparse.norm)))
    else:
        raise ValueError(f"an attack is one of {', '.join(ATTACKS)}, not {attack!r}")
    return pack(replace(update, sparse=sparse))
