"""What is watched of one answered request: where the model looked, what it saw, and how the picture is encoded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import Evidence

Floats = NDArray[np.float64]
SIDE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One picture of one answer.

    ``label`` is what the answer named (its class); ``map`` float64 ``[SIDE, SIDE]`` sums to 1; ``features`` float64
    ``[H]`` is the mean of the picture's visual features, empty where the bundle gives none; ``texture`` float64 ``[T]``
    says how it is encoded (``foveola.intake.texture``), empty where that is not known.
    """

    camera: str
    label: str
    map: Floats
    features: Floats
    texture: Floats = field(default_factory=lambda: np.zeros(0))


def observe(camera: str, label: str, evidence: Evidence) -> Observation:
    """What the evidence of one picture says."""
    summary, texture = (np.asarray(values, np.float64) for values in (evidence.summary, evidence.texture))
    return Observation(camera, label, heat_map(evidence), summary, texture)


def heat_map(evidence: Evidence) -> Floats:
    """The attention of one picture on ``SIDE`` × ``SIDE`` equal cells: each visual token's weight is spread evenly over
    its area, so that pictures of all sizes compare. A picture that got no attention has a flat map."""
    rows, columns = evidence.grid
    weights = np.asarray(evidence.weights, np.float64).reshape(rows, columns)
    found = _shares(rows).T @ weights @ _shares(columns)
    total = found.sum()
    return found / total if total > 0 else np.full((SIDE, SIDE), 1 / SIDE**2)


@lru_cache(maxsize=64)
def _shares(count: int) -> Floats:
    """[count, SIDE]: which part of each of ``count`` equal intervals lies in each of ``SIDE`` equal intervals."""
    edges, cells = np.arange(count + 1) / count, np.arange(SIDE + 1) / SIDE
    low = np.maximum(edges[:-1, None], cells[None, :-1])
    high = np.minimum(edges[1:, None], cells[None, 1:])
    shares: Floats = np.maximum(0.0, high - low) * count
    return shares


def cosine(a: Floats, b: Floats) -> float:
    """Cosine of the angle between two maps, 0..1 for maps without negative values; 0 where one of them is 0."""
    one, other = a.ravel(), b.ravel()  # every frame comes here: three dot products are quicker than two norms
    scale = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / scale if scale > 0 else 0.0


def pearson(a: Floats, b: Floats) -> float:
    """Correlation of two maps, -1..1; 0 where one of them is flat. Unlike the cosine it is near 0 for unrelated maps:
    that of two non-negative maps is about 1 / (1 + CV²), whatever they show."""
    return cosine(a - a.mean(), b - b.mean())
