"""A linear reading of the encoder's vectors: which intent a text is for, learnt from labelled wordings.

Nearness to a few phrases hears what they say; the head hears what hundreds of wordings have in common, in either
language. Ridge regression on one-hot targets in closed form (Hoerl and Kennard 1970), so that fitting it needs no
random start and takes a blink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.bridge.encoder import Vectors

Floats = NDArray[np.float64]
RIDGE = 1.0
"""Penalty per wording of the weights, for vectors of unit length around their mean."""


@dataclass(frozen=True, slots=True)
class Head:
    """``weights`` [H + 1, intents] over a vector less ``mean`` [H], the last row for the constant 1."""

    intents: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()

    def __call__(self, vectors: Vectors, names: Sequence[str]) -> Floats:
        """Scores [N, names], about 1 for what a text is for and 0 for the others; 0 for intents that it never met."""
        found = np.zeros((len(vectors), len(names)))
        if not self.intents or vectors.shape[1] != len(self.mean):
            return found
        scores = _inputs(vectors, np.array(self.mean)) @ np.array(self.weights)
        for column, name in enumerate(names):
            if name in self.intents:
                found[:, column] = scores[:, self.intents.index(name)]
        return found


def fit_head(vectors: Vectors, truth: NDArray[np.int64], names: Sequence[str], *, ridge: float = RIDGE) -> Head:
    """The head for ``vectors`` [N, H] of wordings of the intents ``names[truth]``; every intent weighs the same."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    inputs = _inputs(vectors, mean)
    wanted = np.eye(len(names))[truth]
    share = 1.0 / np.maximum(np.bincount(truth, minlength=len(names)), 1)[truth]
    share *= len(truth) / share.sum()
    weighed = inputs * share[:, None]
    penalty = np.eye(inputs.shape[1]) * ridge * len(truth) / inputs.shape[1]
    penalty[-1, -1] = 1e-6
    weights = np.linalg.solve(weighed.T @ inputs + penalty, weighed.T @ wanted)
    met = [index for index in range(len(names)) if (truth == index).any()]
    return Head(
        tuple(names[index] for index in met),
        tuple(round(float(value), 5) for value in mean),
        tuple(tuple(round(float(row[index]), 4) for index in met) for row in weights),
    )


def _inputs(vectors: Vectors, mean: Floats) -> Floats:
    away = vectors.astype(np.float64) - mean
    length = np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-6)
    return np.concatenate([away / length, np.ones((len(away), 1))], axis=1)
