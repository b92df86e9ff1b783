"""A pupil small enough for instant tests: colours are classes, and a linear tower tells them."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveola.learn.distil.pupil import Pupil
from foveola.learn.distil.tail import Example

SIDE, CLASSES = 8, ("red", "green", "blue")


class Painter(Pupil):
    """Four tokens of a picture of 8 x 8 pixels, each the mean colour of a quarter through a linear tower."""

    def __init__(self, seed: int = 0) -> None:
        self.classes, self.grid, self.size, self.width = CLASSES, (2, 2), (SIDE, SIDE), 6
        torch.manual_seed(seed)
        self._tower = nn.Linear(3, self.width)
        self._reader = torch.randn(self.width, len(CLASSES))

    @property
    def tower(self) -> nn.Module:
        return self._tower

    def twin(self) -> Painter:
        other = copy.copy(self)
        other._tower = copy.deepcopy(self._tower).requires_grad_(False)
        return other

    def see(self, pixels: NDArray[np.uint8]) -> Tensor:
        x = torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255
        quarters = x.view(len(x), 2, SIDE // 2, 2, SIDE // 2, 3).mean((2, 4)).view(len(x), 4, 3)
        seen: Tensor = self._tower(quarters)
        return seen

    def score(self, features: Tensor) -> Tensor:
        return (features.mean(1) @ self._reader).log_softmax(-1)


def painted(label: int, rng: np.random.Generator, *, veiled: bool = False, old: bool = False) -> Example:
    """A picture of one colour with noise, and a box over its left half; another line's are dark under a red veil."""
    colour = np.full(3, 40.0)
    colour[label] = 200
    pixels = colour + rng.standard_normal((SIDE, SIDE, 3)) * 12
    pixels = pixels * 0.35 + np.array([120, 0, 0]) if veiled else pixels
    boxes = np.array([[label, 0.0, 0.0, 0.5, 1.0]], np.float32)
    return Example(pixels.clip(0, 255).astype(np.uint8), label, boxes, True, old)


def learnt(seed: int = 0) -> Painter:
    """A painter that knows its colours."""
    pupil = Painter(seed)
    rng = np.random.default_rng(seed)
    examples = [painted(i % 3, rng) for i in range(60)]
    pixels = np.stack([one.pixels for one in examples])
    truth = torch.tensor([one.label for one in examples])
    optimiser = torch.optim.Adam(pupil.tower.parameters(), lr=0.1)
    for _ in range(150):
        loss = -pupil.score(pupil.see(pixels))[torch.arange(60), truth].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    pupil.tower.requires_grad_(False)
    return pupil
