from __future__ import annotations

import numpy as np

from foveola.learn.distil.reservoir import Reservoir


def filled(herded: bool, count: int = 200) -> tuple[Reservoir, np.ndarray]:
    rng = np.random.default_rng(0)
    features = (rng.standard_normal((count, 4)) + 3).astype(np.float32)
    reservoir = Reservoir(6, herded=herded)
    for key, feature in enumerate(features):
        reservoir.offer(key, 0, False, feature, rng)
    return reservoir, features


def test_it_never_holds_more_than_its_capacity_of_a_shelf() -> None:
    reservoir, _ = filled(True)
    reservoir.offer(-1, 0, True, np.zeros(4, np.float32), np.random.default_rng(0))
    reservoir.offer(900, 2, False, np.zeros(4, np.float32), np.random.default_rng(0))
    assert len(reservoir) == 6 + 1 + 1
    assert reservoir.labels() == [0, 2]


def test_herding_keeps_the_mean_far_better_than_chance() -> None:
    def gap(herded: bool) -> float:
        reservoir, features = filled(herded)
        (shelf,) = reservoir.shelves.values()
        return float(np.linalg.norm(features[shelf.keys].mean(0) - features.mean(0)))

    assert gap(True) < 0.2 * gap(False)


def test_a_rare_class_is_kept_whole() -> None:
    reservoir, _ = filled(True)
    rng = np.random.default_rng(1)
    for key in (500, 501):
        reservoir.offer(key, 1, False, np.zeros(4, np.float32), rng)
    assert {reservoir.draw(1, rng) for _ in range(50)} == {500, 501}


def test_old_and_new_of_a_class_are_drawn_alike() -> None:
    rng = np.random.default_rng(0)
    reservoir = Reservoir(50)
    for key in range(50):
        reservoir.offer(key, 0, False, np.full(2, key, np.float32), rng)
    reservoir.offer(-1, 0, True, np.zeros(2, np.float32), rng)
    old = sum(reservoir.draw(0, rng) == -1 for _ in range(1000))
    assert 400 < old < 600
