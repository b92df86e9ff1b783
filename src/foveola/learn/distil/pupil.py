"""What learns, as far as this room knows it: pictures to features, features to a score for each class's answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Pupil(ABC):
    """A model whose vision tower learns while everything behind it stays as it is.

    So the tower is all that a server has to be sent. ``grid`` is (rows, columns) of the visual tokens of one picture,
    ``size`` its (height, width) in pixels, ``width`` that of a feature.
    """

    classes: tuple[str, ...]
    grid: tuple[int, int]
    size: tuple[int, int]
    width: int

    @property
    @abstractmethod
    def tower(self) -> nn.Module:
        """The module that learns."""

    @abstractmethod
    def see(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Features float32 [B, n, width] of pictures uint8 [B, H, W, 3] of ``size``; differentiable."""

    @abstractmethod
    def score(self, features: Tensor) -> Tensor:
        """Log-likelihood [B, C] of each class's answer, given features [B, n, width]; differentiable."""

    @abstractmethod
    def twin(self) -> Pupil:
        """Another with the same weights, which learn nothing."""


@torch.no_grad()
def look(pupil: Pupil, pictures: Sequence[NDArray[np.uint8]], batch: int = 32) -> tuple[Tensor, Tensor]:
    """Features [N, n, width] and scores [N, C] of pictures, without gradients."""
    features, scores = [], []
    for start in range(0, len(pictures), batch):
        seen = pupil.see(np.stack(pictures[start : start + batch]))
        features.append(seen)
        scores.append(pupil.score(seen))
    if not features:
        return torch.zeros(0, pupil.grid[0] * pupil.grid[1], pupil.width), torch.zeros(0, len(pupil.classes))
    return torch.cat(features), torch.cat(scores)
