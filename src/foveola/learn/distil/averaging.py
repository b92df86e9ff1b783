"""Averaged weights, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]


class Average:
    """An exponential average of a module's weights (Polyak; as Tarvainen & Valpola 2017 use it).

    Early on it follows faster, or it would remember the start: the decay is min(decay, (1 + t) / (10 + t)).
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.weights: Weights = snapshot(module)

    @torch.no_grad()
    def follow(self, module: nn.Module) -> None:
        """After an optimiser's step."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for name, weight in module.state_dict().items():
            self.weights[name].lerp_(weight, 1 - decay)


def snapshot(module: nn.Module) -> Weights:
    """A copy of a module's weights."""
    return {name: weight.detach().clone() for name, weight in module.state_dict().items()}


def between(before: Mapping[str, Tensor], after: Mapping[str, Tensor], share: float) -> Weights:
    """Weights on the straight line from ``before`` (0) to ``after`` (1) (Wortsman et al. 2022, arXiv 2109.01903)."""
    return {name: torch.lerp(weight, after[name], share) for name, weight in before.items()}


class EarlyStop:
    """Remembers the best of what was looked at; says when ``patience`` looks brought nothing better.

    Of equals the later one is kept: on a guard of few pictures they are frequent, and the later one has learnt more.
    """

    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.without = patience, float("-inf"), 0

    def look(self, score: float) -> bool:
        """Whether ``score`` is as good as the best so far."""
        kept = score >= self.best
        self.without = 0 if score > self.best else self.without + 1
        self.best = max(self.best, score)
        return kept

    @property
    def over(self) -> bool:
        """Whether to stop."""
        return self.without >= self.patience
