from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from foveola.compress.folding import apply_fold, channels, fits  # noqa: E402
from foveola.family.foldable import Fold, halves  # noqa: E402
from foveola.family.qwen2_vl import QWEN2_VL  # noqa: E402

pytestmark = pytest.mark.torch


class Block(torch.nn.Module):
    """A gated MLP behind a normalisation, and a value that two query heads of 4 share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.LayerNorm(8)
        self.value = torch.nn.Linear(8, 4)
        self.output = torch.nn.Linear(8, 8, bias=False)
        self.up = torch.nn.Linear(8, 12)
        self.down = torch.nn.Linear(12, 8)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        heads = self.value(x).repeat(1, 2)  # each of two query heads reads the one value head
        return self.output(heads) + self.down(self.up(x))


@pytest.mark.parametrize(
    ("fold", "count"),
    [(Fold("norm", ("value", "up")), 8), (Fold("value", ("output",)), 4), (Fold("up", ("down",)), 12)],
)
def test_a_fold_leaves_the_function_as_it_was(fold: Fold, count: int) -> None:
    block = Block()
    x = torch.randn(5, 8)
    before = block(x)
    channel = channels(block, fold, head_dim=4)
    assert channel is not None
    assert int(channel.max()) + 1 == count
    weights = dict(block.state_dict())
    apply_fold(weights, fold, torch.rand(count) + 0.5, channel)
    after = torch.func.functional_call(block, weights, (x,))
    assert (after - before).norm() <= 1e-5 * before.norm()
    assert not torch.equal(weights[f"{fold.targets[0]}.weight"], block.get_submodule(fold.targets[0]).weight)


def test_only_the_last_part_of_a_fused_layer_is_divided() -> None:
    weights = {"qkv.weight": torch.ones(12, 4), "qkv.bias": torch.ones(12), "out.weight": torch.ones(4, 4)}
    apply_fold(weights, Fold("qkv", ("out",), 3), torch.full((4,), 2.0), torch.arange(4))
    assert weights["qkv.bias"].tolist() == [1.0] * 8 + [0.5] * 4
    assert weights["qkv.weight"][8:].eq(0.5).all()
    assert weights["out.weight"].eq(2).all()


def test_what_is_not_so_simple_is_left_alone() -> None:
    block = Block()
    assert not fits(block, Fold("norm", ("gate",)))
    assert channels(block, Fold("up", ("output",)), head_dim=4) is None
    assert channels(block, Fold("up", ("down",), 3), head_dim=4) is None


def test_the_family_says_what_feeds_what() -> None:
    vision, decoder = halves(QWEN2_VL)
    assert vision.tail == "model.visual.merger"
    assert vision.tail_folds == (Fold("ln_q", ("mlp.0",)),)
    assert Fold("attn.qkv", ("attn.proj",), 3) in vision.folds
    assert not any("mlp.fc2" in fold.targets for fold in vision.folds)  # GELU lies between
    assert Fold("mlp.up_proj", ("mlp.down_proj",)) in decoder.folds
