"""What is kept of the past: a few pictures of each class and origin, chosen as they come.

Herding (Welling 2009; iCaRL, Rebuffi et al. 2017, arXiv 1611.07725) keeps those whose mean is nearest to the mean of
all that came; here it runs online: a newcomer enters, and the one goes whose leaving disturbs that mean least.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(slots=True)
class Shelf:
    """Of one class and origin: the keys that are kept, their features, and the mean of all that came."""

    keys: list[int] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    mean: Floats | None = None
    came: int = 0


class Reservoir:
    """At most ``capacity`` keys on each shelf. ``herded`` False keeps each with the same chance (Vitter 1985)."""

    def __init__(self, capacity: int, *, herded: bool = True) -> None:
        self.capacity, self.herded = capacity, herded
        self.shelves: dict[tuple[int, bool], Shelf] = {}

    def offer(self, key: int, label: int, old: bool, feature: Floats, rng: np.random.Generator) -> bool:
        """Whether ``key`` (of class ``label``, from before the stream where ``old``) is kept. ``feature`` is [H]."""
        shelf = self.shelves.setdefault((label, old), Shelf())
        shelf.came += 1
        shelf.mean = feature if shelf.mean is None else shelf.mean + (feature - shelf.mean) / np.float32(shelf.came)
        if len(shelf.keys) < self.capacity:
            gone = None
        elif self.herded:
            gone = _least_missed(np.stack([*shelf.features, feature]), shelf.mean)
        else:
            place = int(rng.integers(shelf.came))
            gone = place if place < self.capacity else self.capacity
        if gone == self.capacity:
            return False
        if gone is not None:
            del shelf.keys[gone], shelf.features[gone]
        shelf.keys.append(key)
        shelf.features.append(feature)
        return True

    def labels(self) -> list[int]:
        """The classes of which something is kept, ascending."""
        return sorted({label for label, _ in self.shelves})

    def draw(self, label: int, rng: np.random.Generator) -> int:
        """One key of a class; old and new shelves are as likely where both hold something."""
        filled = [shelf for (of, _), shelf in sorted(self.shelves.items()) if of == label and shelf.keys]
        shelf = filled[int(rng.integers(len(filled)))]
        return shelf.keys[int(rng.integers(len(shelf.keys)))]

    def __len__(self) -> int:
        return sum(len(shelf.keys) for shelf in self.shelves.values())


def _least_missed(features: Floats, mean: Floats) -> int:
    """The index without which the mean of ``features`` [n, H] is nearest to ``mean`` [H]."""
    without = (features.sum(0) - features) / np.float32(len(features) - 1)
    return int(np.square(without - mean).sum(1).argmin())
