"""Differential privacy for a whole node: noise on the mean, and what that promises after so many rounds.

Every update has a norm of at most ``clip`` and, under noise, the same weight, so a node moves the mean of K by at most
clip / K. Gaussian noise of ``noise`` times that hides whether its update was its own or empty (zero-out adjacency, as
Flower's and TensorFlow's accountants take it). Rounds add up by zero-concentrated privacy: each costs 1 / (2 noise²)
(Bun, Steinke: "Concentrated differential privacy", TCC 2016, propositions 1.3 and 1.6). Nothing is gained here from
nodes being away, so the figure is an upper bound. The server sees single updates; it is trusted not to look.
"""

from __future__ import annotations

import math

import numpy as np

from foveola.learn.federate.codec import Floats


def noised(mean: Floats, updates: int, clip: float, noise: float, rng: np.random.Generator) -> Floats:
    """``mean`` float32 ``[size]`` of ``updates`` updates, with noise."""
    told: Floats = mean + (rng.standard_normal(mean.shape) * (noise * clip / updates)).astype(np.float32)
    return told


def epsilon(rounds: int, noise: float, delta: float) -> float:
    """The ε of (ε, ``delta``)-privacy after ``rounds`` rounds; infinite without noise."""
    if noise == 0:
        return math.inf
    spent = rounds / (2 * noise**2)
    return spent + 2 * math.sqrt(spent * math.log(1 / delta))
