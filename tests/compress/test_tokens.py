"""Fewer visual tokens in training: the same numbers as if they were gone, and a model that learns to do with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from PIL import Image  # noqa: E402

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.compress.recipe import recipe_of  # noqa: E402
from foveola.compress.selecting import Selecting  # noqa: E402
from foveola.compress.steps import Workbench  # noqa: E402
from foveola.compress.token_rivals import by_chance, evenly  # noqa: E402
from foveola.compress.tokens import Tokens, look, look_at_some, semantic_loss  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.lower import selection_reference  # noqa: E402
from foveola.lower.reference import Pictures  # noqa: E402
from tests.checkpoints import random_model  # noqa: E402
from tests.compress.samples import example  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model() -> Any:
    made = random_model()
    made.set_attn_implementation("eager")
    return made


def selecting(model: Any, keep: int, **others: Any) -> Selecting:
    return Selecting(model, family_of(model.config.to_dict()), after=1, keep=keep, **others)


def test_keeping_all_changes_nothing(model: Any) -> None:
    one = example(model)
    with torch.no_grad():
        full, same = look(model, one), look_at_some(model, one, selecting(model, 4))
        assert torch.allclose(full.answers, same.answers, atol=1e-5)
        assert torch.allclose(full.attention, same.attention, atol=1e-6)
        again = look(model, one)
    assert torch.equal(full.answers, again.answers)  # nothing is left of it


def test_the_tower_gives_for_the_kept_what_it_gives_when_the_others_are_gone(model: Any) -> None:
    one, family = example(model, seed=3), family_of(model.config.to_dict())
    seen: dict[str, Any] = {}

    def record(features: Any, kept: Any) -> None:
        seen.update(features=features[kept.index], kept=kept.index.tolist(), counts=kept.count.tolist())

    pixels = one.inputs["pixel_values"]
    positions = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    corners = torch.tensor([[0, 0], [0, 2], [2, 0], [2, 2]])
    where = (corners[:, None] + positions[None]).view(-1, 2)
    segment = torch.zeros(16, dtype=torch.long)
    made = Pictures(pixels, where, segment, torch.zeros(0), every_frame=pixels, sizes=torch.zeros(0))
    with torch.no_grad():
        look_at_some(model, one, selecting(model, 2, seen=record))
        wanted, kept = selection_reference.selected(model, family, made, [(4, 4)], merge=2, after=1, keep=2)
    assert seen["kept"] == kept
    assert sum(seen["counts"]) == 4
    assert torch.allclose(seen["features"], wanted, atol=1e-4)


def test_nobody_attends_to_what_is_left_out(model: Any) -> None:
    some = selecting(model, 2)
    with torch.no_grad():
        seen = look_at_some(model, example(model), some)
    assert some.kept is not None
    left_out = sorted({0, 1, 2, 3} - set(some.kept.index.tolist()))
    assert float(seen.attention[..., left_out].abs().max()) == 0
    assert float(seen.attention[..., some.kept.index].min()) > 0


def test_the_loss_of_meaning_adds_up_what_a_kept_token_stands_for() -> None:
    full = torch.rand(2, 3, 5, 4)
    goes, index = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 2])
    part = torch.zeros_like(full)
    part[..., 1], part[..., 2] = full[..., 0] + full[..., 1], full[..., 2] + full[..., 3]
    assert float(semantic_loss(full, part, goes, index)) == pytest.approx(0, abs=1e-12)
    part[..., 1] += 0.5
    assert float(semantic_loss(full, part, goes, index)) == pytest.approx(0.25)


def samples(folder: Path, count: int) -> Path:
    """The same sample so many times: whether something is learnt, not how it carries over, is what can be seen here."""
    pixels = np.random.default_rng(0).integers(0, 255, (84, 84, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "picture.png")
    line = json.dumps({"prompt": "Which defect is this?", "answer": "a scratch", "image": "picture.png"})
    (folder / "samples.jsonl").write_text(f"{line}\n" * count, encoding="utf-8")
    return folder / "samples.jsonl"


def test_a_checkpoint_learns_from_fewer_tokens(checkpoint: Path, tmp_path: Path) -> None:
    source = Checkpoint.open(checkpoint)
    out = tmp_path / "out"
    out.mkdir()
    bench = Workbench(journal=tmp_path, calibration=samples(tmp_path, 3))
    how = Tokens(after=1, least=0.5, most=0.5, steps=8, batch=1, rate=1e-4, hard=0.0)
    finding = how.run(source, out, bench)
    assert finding.step == "compress.tokens"
    assert float(finding.after["kl"]) < float(finding.before["kl"])
    learnt = Checkpoint.open(out)
    assert learnt.config == source.config
    assert {name: (t.dtype, t.shape) for name, t in learnt.tensors.items()} == {
        name: (t.dtype, t.shape) for name, t in source.tensors.items()
    }


def test_what_cannot_be_done_is_told(checkpoint: Path, tmp_path: Path) -> None:
    source = Checkpoint.open(checkpoint)
    with pytest.raises(Invalid, match=r"tokens learns from samples; give the recipe \[calibration\] samples = FILE\."):
        Tokens().run(source, tmp_path, Workbench(journal=tmp_path))
    with pytest.raises(Invalid, match="least and most are 0.9 and 0.5; expected shares above 0 and up to 1, in order"):
        recipe_of({"step": [{"use": "tokens", "least": 0.9, "most": 0.5}]}, tmp_path)
    words = tmp_path / "words.jsonl"
    words.write_text('{"text": "no picture"}\n', encoding="utf-8")
    with pytest.raises(Invalid, match="tokens learns from pictures; the samples hold fewer than two of them"):
        Tokens().run(source, tmp_path, Workbench(journal=tmp_path, calibration=words))


def test_a_tower_without_that_place_is_refused(model: Any) -> None:
    with pytest.raises(Invalid, match="after is 3; the tower has 2 blocks, expected 0 to 2"):
        Selecting(model, family_of(model.config.to_dict()), after=3, keep=1)


def test_pooling_goes_on_with_the_mean_of_what_a_token_stands_for(model: Any) -> None:
    features: dict[str, Any] = {}
    after, grid = 2, torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    with torch.no_grad():
        look_at_some(
            model,
            example(model),
            Selecting(
                model, family_of(model.config.to_dict()), after=after, keep=2, rule=evenly, blend=True,
                seen=lambda given, kept: features.update(given=given, kept=kept),
            ),
        )  # fmt: skip
    kept = features["kept"]
    assert torch.equal(kept.goes, evenly(torch.zeros(4, 3), grid, 2).goes)
    for place in range(2):
        own = features["given"][kept.goes == place]
        assert torch.allclose(own, own[:1].expand_as(own))


@pytest.mark.parametrize(
    ("grid", "keep", "used"), [((8, 8), 32, 32), ((5, 7), 12, 12), ((16, 16), 64, 64), ((3, 3), 4, 4)]
)
def test_the_even_grid_spreads_over_the_frame(grid: tuple[int, int], keep: int, used: int) -> None:
    places = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1]))
    kept = evenly(torch.zeros(len(places), 3), places, keep)
    assert len(kept.index) == used
    assert float(kept.count.max() / kept.count.min()) <= 4
    assert float(kept.count.sum()) == len(places)


def test_chance_keeps_what_its_seed_says() -> None:
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    look = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    first, same, other = (by_chance(seed)(look, places, 5).index.tolist() for seed in (1, 1, 2))
    assert first == same != other
