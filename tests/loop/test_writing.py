from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from safetensors.torch import load_file  # noqa: E402

from foveola.artifact import Checkpoint, Finding  # noqa: E402
from foveola.exchange import Damaged, Unsupported  # noqa: E402
from foveola.loop.writing import check_plain, write_patch, write_repaired  # noqa: E402
from tests.checkpoints import random_checkpoint  # noqa: E402

pytestmark = pytest.mark.torch
FINDING = Finding(step="learn.distil", changed="the tower")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(random_checkpoint(tmp_path_factory.mktemp("writing") / "checkpoint"))


def tower_of(source: Checkpoint) -> dict[str, torch.Tensor]:
    stored = load_file(source.file(source.weight_files[0]))
    return {name.partition("visual.")[2]: value + 1 for name, value in stored.items() if "visual." in name}


def test_only_the_tower_differs_and_the_lineage_says_why(source: Checkpoint, tmp_path: Path) -> None:
    made = write_repaired(source, tower_of(source), tmp_path / "made", name="repaired", finding=FINDING)
    before, after = (load_file(one.file(one.weight_files[0])) for one in (source, made))
    assert list(before) == list(after)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "visual." in name}
    assert [one.step for one in made.lineage] == ["learn.distil"]
    assert Checkpoint.open(made.path).name == "repaired"
    others = {path.name for path in source.path.iterdir()} - set(source.weight_files)
    assert others <= {path.name for path in made.path.iterdir()}


def test_the_patch_holds_the_tower_named_from_itself_on(source: Checkpoint, tmp_path: Path) -> None:
    count = write_patch(source, tmp_path / "vision.safetensors")
    tensors = load_file(tmp_path / "vision.safetensors")
    assert set(tensors) == set(tower_of(source))
    assert count == len(tensors)
    assert {value.dtype for value in tensors.values()} == {torch.float32}


def test_a_tower_that_is_not_the_sources_is_refused_and_nothing_is_written(source: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="tensors in its vision tower; expected 1"):
        write_repaired(source, {"other": torch.zeros(1)}, tmp_path / "made", name="repaired", finding=FINDING)
    assert not (tmp_path / "made").exists()


def test_a_packed_tower_is_refused(source: Checkpoint) -> None:
    check_plain(source)
    name = next(name for name in source.tensors if "visual." in name)
    packed = replace(source, tensors={**source.tensors, name: replace(source.tensors[name], dtype="U8")})
    with pytest.raises(Unsupported, match=r"packed weights \(U8\); repair the checkpoint that it was made of"):
        check_plain(packed)
