from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foveola.exchange import Damaged, Invalid
from foveola.learn.distil.boxes import TokenHeads
from foveola.learn.distil.options import DistilOptions, preset
from foveola.learn.distil.state import restore, save
from foveola.learn.distil.train import Distiller
from tests.learn.distil.making import learnt
from tests.learn.distil.test_train import lessons

OPTIONS = preset("balanced", fresh=10, again=6, check_every=4, save_every=1, patience=50)


class Killed(Exception):
    """As if the process had ended."""


def fresh(options: DistilOptions = OPTIONS, seed: int = 0) -> Distiller:
    pupil = learnt()
    torch.manual_seed(5)
    return Distiller(pupil, TokenHeads(pupil.width, 3, pupil.grid), lessons(seed), options)


def killed_at(step: int, path: Path) -> None:
    def keep(distiller: Distiller) -> None:
        save(distiller, path)
        if distiller.step == step:
            raise Killed

    with pytest.raises(Killed):
        fresh().run(save=keep)


def test_a_run_that_was_killed_ends_with_the_same_weights(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    killed_at(7, path)
    again = fresh()
    restore(again, path)
    assert again.step == 7
    whole = fresh().run()
    resumed = again.run()
    assert all(torch.equal(weight, resumed[name]) for name, weight in whole.items())


def test_a_run_of_other_records_or_options_does_not_go_on(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    killed_at(2, path)
    with pytest.raises(Invalid, match="run.safetensors is of a run with other records or options"):
        restore(fresh(seed=1), path)
    with pytest.raises(Invalid, match="give those again, or another --out"):
        restore(fresh(preset("balanced", fresh=11)), path)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(Damaged, match="holds no run that can go on; remove it"):
        restore(fresh(), path)
