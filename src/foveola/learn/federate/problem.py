"""The problem that nodes solve: a prompt whose row c scores class c on frozen features. Convex, so that there is
one right answer to compare with.

Softmax regression: logits = temperature · f p^T with f of norm 1; the loss is the cross-entropy plus
``l2`` / 2 · ‖p‖². It stands in for the training of a prompt inside of the model, which needs its gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.artifact.prompt import ROWS
from foveola.exchange import Invalid
from foveola.learn.federate.codec import Floats

Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Problem:
    """``temperature`` scales the logits, ``l2`` weighs the penalty, ``rate`` is the step of local training."""

    temperature: float = 10.0
    l2: float = 1e-3
    rate: float = 0.05

    def gradient(self, prompt: Floats, features: Floats, labels: Labels) -> Floats:
        """float32 ``[ROWS, width]`` of the loss at ``prompt`` on ``features`` ``[N, width]``, ``labels`` ``[N]``."""
        logits = self.temperature * (features @ prompt.T)
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(labels)), labels] -= 1
        gradient: Floats = (self.temperature / len(labels)) * (chances.T @ features) + np.float32(self.l2) * prompt
        return gradient

    def loss(self, prompt: Floats, features: Floats, labels: Labels) -> float:
        """The loss that ``gradient`` belongs to."""
        logits = self.temperature * (features @ prompt.T).astype(np.float64)
        peak = logits.max(axis=1)
        entropy = np.log(np.exp(logits - peak[:, None]).sum(axis=1)) + peak - logits[np.arange(len(labels)), labels]
        return float(entropy.mean()) + self.l2 / 2 * float((prompt.astype(np.float64) ** 2).sum())

    def train(self, prompt: Floats, features: Floats, labels: Labels, steps: int) -> Floats:
        """The prompt after ``steps`` steps of gradient descent on everything: what a node does in a round.

        All gradients lie in what the features span, so the steps are made there, in ``[N, ROWS]`` numbers: a prompt is
        ``left`` times the first one, plus the features weighed by ``added``.
        """
        first, likeness = features @ prompt.T, features @ features.T
        left, added = 1.0, np.zeros((len(labels), ROWS), np.float32)
        shrinks, gain = 1 - self.rate * self.l2, np.float32(self.rate * self.temperature / len(labels))
        own = np.arange(len(labels)), labels
        for _ in range(steps):
            logits = np.float32(self.temperature) * (np.float32(left) * first + likeness @ added)
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            chances[own] -= 1
            left, added = left * shrinks, np.float32(shrinks) * added - gain * chances
        trained: Floats = np.float32(left) * prompt + added.T @ features
        return trained

    def on(self, features: Floats, labels: Labels, steps: int) -> Descent:
        """What a node does with features ``[N, width]`` and labels ``[N]`` in a round."""
        return Descent(self, features, labels, steps)

    def centralised(self, features: Floats, labels: Labels, steps: int = 2000) -> Floats:
        """The answer with all pictures in one place: Nesterov's accelerated descent from 0."""
        largest = float(np.linalg.eigvalsh(features.T.astype(np.float64) @ features / len(features))[-1])
        rate = np.float32(1.0 / (0.5 * self.temperature**2 * largest + self.l2))
        ahead = prompt = np.zeros((ROWS, features.shape[1]), np.float32)
        for step in range(steps):
            before, prompt = prompt, ahead - rate * self.gradient(ahead, features, labels)
            ahead = prompt + np.float32(step / (step + 3)) * (prompt - before)
        return prompt


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """``steps`` steps of ``problem`` on everything that a node has: a ``node.Training``."""

    problem: Problem
    features: Floats
    labels: Labels
    steps: int

    @property
    def examples(self) -> int:
        """Pictures of this node."""
        return len(self.labels)

    def __call__(self, prompt: Floats) -> Floats:
        """The prompt after the local rounds of one update."""
        return self.problem.train(prompt, self.features, self.labels, self.steps)


def accuracy(prompt: Floats, features: Floats, labels: Labels) -> float:
    """Share of pictures whose own row scores highest."""
    return float(((features @ prompt.T).argmax(axis=1) == labels).mean())


def normalised(features: Floats) -> Floats:
    """Every feature without its own mean, with norm 1: a node needs nothing of others for that."""
    centred = features - features.mean(axis=1, keepdims=True)
    unit: Floats = (centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)).astype(np.float32)
    return unit


def shards(labels: Labels, nodes: int, concentration: float, rng: np.random.Generator) -> list[Labels]:
    """Indices of each node's pictures: the classes of a node follow a Dirichlet distribution (Hsu, Qi, Brown 2019);
    the smaller ``concentration``, the fewer classes a node sees. Every node gets the same number, ±1.

    Raises Invalid where there are fewer pictures than nodes.
    """
    if nodes < 1 or len(labels) < nodes:
        raise Invalid(f"{len(labels)} pictures cannot be split over {nodes} nodes; every node needs at least one.")
    classes = int(labels.max()) + 1
    left = [list(rng.permutation(np.flatnonzero(labels == c))) for c in range(classes)]
    sizes = [len(part) for part in np.array_split(np.arange(len(labels)), nodes)]
    taken: list[Labels] = []
    for size in sizes:
        share = rng.dirichlet(np.full(classes, concentration)) + 1e-9
        mine: list[int] = []
        while len(mine) < size:
            open_share = np.where([len(rest) > 0 for rest in left], share, 0.0)
            mine.append(int(left[int(rng.choice(classes, p=open_share / open_share.sum()))].pop()))
        taken.append(np.array(mine, np.int64))
    return taken


def synthetic(count: int, width: int, rng: np.random.Generator, spread: float = 1.0) -> tuple[Floats, Labels]:
    """Features ``[count, width]`` in ``ROWS`` overlapping classes around random centres, as a frozen tower might give
    them, and their labels."""
    centres = rng.standard_normal((ROWS, width)) / np.sqrt(width)
    labels = rng.integers(0, ROWS, count)
    noise = rng.standard_normal((count, width)) * (spread * 3 / np.sqrt(width))
    return normalised((centres[labels] + noise).astype(np.float32)), labels.astype(np.int64)
