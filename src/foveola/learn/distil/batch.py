"""The pictures of one step: the next of the stream, and what memory shows again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveola.learn.distil.camera import Change
from foveola.learn.distil.options import DistilOptions
from foveola.learn.distil.reservoir import Reservoir
from foveola.learn.distil.tail import Example, Pixels, class_shares, flipped, paste, restyled


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """``shown`` is what the pupil sees, ``known`` the same pictures as the teacher knows them: before an old one got
    other light, and before something was pasted."""

    shown: tuple[Example, ...]
    known: tuple[Example, ...]

    def targets(self, classes: int) -> Tensor:
        """Soft labels [B, C]; a row of zeros where there is none."""
        soft = torch.zeros(len(self.shown), classes)
        for row, one in zip(soft, self.shown, strict=True):
            if one.label >= 0:
                label, share = one.mixed or (one.label, 0.0)
                row[one.label] += 1 - share
                row[label] += share
        return soft

    @property
    def labels(self) -> Tensor:
        """The classes [B], -1 where nobody said or two are mixed."""
        return torch.tensor([-1 if one.mixed else one.label for one in self.shown])

    @property
    def old(self) -> Tensor:
        """Which are from before the stream [B]."""
        return torch.tensor([one.old for one in self.shown])


class Memory:
    """Draws what is seen again. Keys: the place in the stream, or -1 - the place among the old pictures. ``change`` is
    what is known of how the new line's camera shows things; before that, old pictures get the light of a new one."""

    def __init__(self, options: DistilOptions, stream: Sequence[Example], old: Sequence[Example]) -> None:
        self._options, self._stream, self._old = options, stream, old
        self.reservoir = Reservoir(options.reservoir, herded=options.memory == "herded")
        self.seen: list[int] = []
        self.change: Change | None = None

    def example(self, key: int) -> Example:
        """The picture of a key."""
        return self._stream[key] if key >= 0 else self._old[-1 - key]

    def batch(self, fresh: Sequence[Example], counts: NDArray[np.float64], rng: np.random.Generator) -> Batch:
        """``fresh`` and as many more as the options say; ``counts`` [C] are the stream's labels so far."""
        options = self._options
        known = [_turned(one, _mirrors(rng)) for one in fresh]
        shown = list(known)
        for _ in range(options.again):
            one = self._again(counts, rng)
            if one is None:
                break
            mirrors = _mirrors(rng)
            known.append(_turned(one, mirrors))
            if one.old and fresh and rng.random() < options.restyle:
                one = replace(one, pixels=self._relit(one.pixels, fresh, rng))
            one = _turned(one, mirrors)  # afterwards: light that comes from a side stays with its side
            if rng.random() < options.paste:
                rare = self._draw(counts, 1.0, rng)
                one = paste(one, rare, rng) if rare is not None else one
            shown.append(one)
        return Batch(tuple(shown), tuple(known))

    def located(self, rng: np.random.Generator) -> list[Example]:
        """All that is kept and has its boxes, also turned by half; old ones also as the new line would show them."""
        found: list[Example] = []
        for _, shelf in sorted(self.reservoir.shelves.items()):
            for one in map(self.example, shelf.keys):
                if not one.located:
                    continue
                found.append(one)
                if one.old and self.change is not None:
                    found.append(replace(one, pixels=self.change.put_on(one.pixels, rng)))
        return [view for one in found for view in (one, flipped(one, True, True))]

    def _relit(self, pixels: Pixels, fresh: Sequence[Example], rng: np.random.Generator) -> Pixels:
        if self.change is not None:
            return self.change.put_on(pixels, rng)
        return restyled(pixels, fresh[int(rng.integers(len(fresh)))].pixels)

    def _again(self, counts: NDArray[np.float64], rng: np.random.Generator) -> Example | None:
        if self._options.keeps_old:
            return self._draw(counts, self._options.tail_power, rng)
        return self._stream[self.seen[int(rng.integers(len(self.seen)))]] if self.seen else None

    def _draw(self, counts: NDArray[np.float64], power: float, rng: np.random.Generator) -> Example | None:
        labels = self.reservoir.labels()
        if not labels:
            return None
        label = int(rng.choice(labels, p=class_shares(counts, labels, power)))
        return self.example(self.reservoir.draw(label, rng))


def _mirrors(rng: np.random.Generator) -> tuple[bool, bool]:
    return bool(rng.random() < 0.5), bool(rng.random() < 0.5)


def _turned(example: Example, mirrors: tuple[bool, bool]) -> Example:
    return flipped(example, *mirrors)
