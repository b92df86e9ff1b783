from __future__ import annotations

import numpy as np
import torch

from foveola.learn.distil.boxes import TokenHeads
from foveola.learn.distil.options import DistilOptions, preset
from foveola.learn.distil.pupil import look
from foveola.learn.distil.train import Distiller, Lessons, Told, held_back
from tests.learn.distil.making import Painter, learnt, painted


def lessons(seed: int = 0, size: int = 120) -> Lessons:
    """A veiled line with 90 % of one class and two pictures of a third."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation([0] * (size - 12) + [1] * 10 + [2] * 2)
    stream = [painted(int(label), rng, veiled=True) for label in labels]
    old = [painted(i % 3, rng, old=True) for i in range(18)]
    guard = [painted(i % 3, rng) for i in range(12)]
    return Lessons(stream, old, guard)


def accuracy(pupil: Painter, label: int, veiled: bool) -> float:
    rng = np.random.default_rng(99)
    pixels = [painted(label, rng, veiled=veiled).pixels for _ in range(30)]
    return float((look(pupil, pixels)[1].argmax(-1) == label).float().mean())


def distilled(options: DistilOptions, told: list[Told] | None = None) -> Painter:
    pupil = learnt()
    distiller = Distiller(pupil, TokenHeads(pupil.width, 3, pupil.grid), lessons(), options)
    pupil.tower.load_state_dict(distiller.run((lambda one: told.append(one)) if told is not None else lambda one: None))
    return pupil


def test_a_veiled_line_is_learnt_with_two_pictures_of_a_class_and_the_old_one_is_kept() -> None:
    assert accuracy(learnt(), 1, True) + accuracy(learnt(), 2, True) < 1  # there is something to repair
    repaired = distilled(preset("balanced", rate=0.05, fresh=8, again=8))
    assert min(accuracy(repaired, label, veiled) for label in range(3) for veiled in (True, False)) > 0.9


def test_what_is_told_of_a_run() -> None:
    told: list[Told] = []
    distilled(preset("balanced", fresh=8, again=4, check_every=5, patience=50), told)
    assert [one.step for one in told] == list(range(1, 16))
    assert [one.step for one in told if one.guard is not None] == [5, 10, 15]
    assert all(one.steps == 15 and np.isfinite(one.loss) and 0.5 < one.strength < 1.5 for one in told)


def test_without_progress_on_the_guard_the_run_ends_early() -> None:
    told: list[Told] = []
    distilled(preset("balanced", fresh=2, again=2, check_every=1, patience=3, rate=1e-6), told)
    assert len(told) == 4


def test_the_seed_alone_decides() -> None:
    one, other = (distilled(preset("balanced", fresh=10)) for _ in range(2))
    assert torch.equal(one.tower.state_dict()["weight"], other.tower.state_dict()["weight"])


def test_the_guard_gets_every_eighth_of_a_class_and_none_of_a_rare_one() -> None:
    stream = lessons().stream
    learn, kept = held_back(stream)
    assert len(learn) + len(kept) == len(stream)
    assert [one.label for one in kept].count(0) == 108 // 8
    assert [one.label for one in kept].count(1) == 1
    assert [one.label for one in kept].count(2) == 0


def test_looking_at_other_weights_changes_nothing() -> None:
    pupil = learnt()
    distiller = Distiller(pupil, TokenHeads(pupil.width, 3, pupil.grid), lessons(), preset("balanced"))
    mine = {name: weight.clone() for name, weight in pupil.tower.state_dict().items()}
    seen = distiller.sight({name: torch.zeros_like(weight) for name, weight in mine.items()})
    assert sum(seen.old.count) == 12
    assert sum(seen.new.count) == 0
    assert all(torch.equal(weight, mine[name]) for name, weight in pupil.tower.state_dict().items())


def test_heads_learn_anew_from_memory_and_the_tower_stays() -> None:
    for name, changes in (("balanced", True), ("fine_tuning", False)):
        pupil = learnt()
        heads = TokenHeads(pupil.width, 3, pupil.grid)
        distiller = Distiller(pupil, heads, lessons(), preset(name, refit=20))
        before = {name: weight.clone() for name, weight in heads.state_dict().items()}
        tower = {name: weight.clone() for name, weight in pupil.tower.state_dict().items()}
        distiller.refit_heads({name: torch.zeros_like(weight) for name, weight in tower.items()})
        assert changes != all(torch.equal(before[name], weight) for name, weight in heads.state_dict().items())
        assert all(torch.equal(tower[name], weight) for name, weight in pupil.tower.state_dict().items())
