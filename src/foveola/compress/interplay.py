"""How roundings of several layers meet in the answers, before any of them is done.

A rounding error E_l moves the answers along a random direction of their own curvature by ``a_l = ⟨G_l, E_l⟩``, G_l
being the gradient of that direction in the layer's weights. The divergence of a whole assignment is then, to second
order,

    KL ≈ ½ mean over directions (Σ_l a_l)²

which needs neither inputs and gradients to be independent nor tokens and layers not to correlate: what
``sensitivity.Sensitivity.cost`` has to assume. Directions have the second moments of labels that the model draws, so
that the mean is over its Fisher matrix (Kunstner et al. 2019, arXiv 1905.12558).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from foveola.compress.sensitivity import Logits, probe

Way = tuple[str, str]
"""Path of a layer, and how it is stored."""


@dataclass(frozen=True, slots=True)
class Interplay:
    """``together`` fp64 [W, W] of the ``ways``: on the diagonal twice the divergence of one alone, beside it how two
    add up."""

    ways: tuple[Way, ...]
    together: np.ndarray

    def alone(self) -> dict[Way, float]:
        """What every way costs if it is the only one, in nats per token."""
        return {way: float(cost) for way, cost in zip(self.ways, 0.5 * self.together.diagonal(), strict=True)}

    def cost(self, storage: Mapping[str, str]) -> float:
        """What layers stored so cost together, in nats per token. Ways that are not among ``ways`` cost nothing."""
        chosen = np.array([storage.get(path) == name for path, name in self.ways])
        return float(0.5 * self.together[chosen][:, chosen].sum())


def measure_interplay(
    model: nn.Module,
    errors: Mapping[Way, Tensor],
    samples: Sequence[Logits],
    *,
    seed: int = 0,
    directions: int = 4,
) -> Interplay:
    """``errors`` are the rounded weights less the exact ones, of every way to store every layer; ``directions`` random
    ones are followed per sample. The model must be frozen, and is left so."""
    paths = list(dict.fromkeys(path for path, _ in errors))
    weights = [_weight(model, path) for path in paths]
    draw = torch.Generator().manual_seed(seed)
    rows: list[list[float]] = []
    tokens = 0
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with torch.enable_grad():
            for sample in samples:
                logits = sample()
                tokens += len(logits)
                for turn in range(directions):
                    direction = probe(logits.detach().softmax(-1), draw)
                    found = torch.autograd.grad(logits, weights, direction, retain_graph=turn < directions - 1)
                    gradients = dict(zip(paths, found, strict=True))
                    rows.append([float((gradients[path] * error).sum()) for (path, _), error in errors.items()])
    finally:
        for weight in weights:
            weight.requires_grad_(False)
    along = np.array(rows, np.float64)
    return Interplay(tuple(errors), along.T @ along / (directions * max(1, tokens)))


def _weight(model: nn.Module, path: str) -> nn.Parameter:
    weight = model.get_submodule(path).weight
    assert isinstance(weight, nn.Parameter)
    return weight
