from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from foveola.compress.moments import gather_moments  # noqa: E402
from foveola.compress.streamed import Streamed, calls_of, run_block, stream_blocks  # noqa: E402
from foveola.compress.token_weights import normalised  # noqa: E402

pytestmark = pytest.mark.torch
EQUAL = (1.0, 1.0, 1.0)


def test_few_words_weigh_as_much_as_many_visual_tokens() -> None:
    squares = [torch.rand(103)]
    kinds = [torch.tensor([0] * 100 + [2] * 3)]
    (weights,) = normalised(squares, kinds, EQUAL, 1.0)
    assert weights.mean() == pytest.approx(1.0, rel=1e-4)
    assert weights[:100].sum() == pytest.approx(float(weights[100:].sum()), rel=1e-3)
    (more,) = normalised(squares, kinds, (1.0, 1.0, 3.0), 1.0)
    assert more[100:].sum() == pytest.approx(3 * float(more[:100].sum()), rel=1e-3)


def test_no_token_weighs_nothing_and_power_0_makes_them_alike() -> None:
    squares = [torch.tensor([0.0, 4.0]), torch.tensor([0.0])]
    tempered = normalised(squares, None, EQUAL, 0.5)
    assert [len(one) for one in tempered] == [2, 1]
    assert tempered[0][0] > 0
    assert torch.equal(torch.cat(normalised(squares, None, EQUAL, 0.0)), torch.ones(3))


def test_moments_are_weighted_and_some_samples_are_held_out() -> None:
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(4, 4))
    inputs = [torch.randn(6, 4) for _ in range(3)]
    weights = [torch.rand(6), torch.rand(6), torch.full((6,), 4.0)]
    found = gather_moments(block, lambda s: block(inputs[s]), [0, 1], [2], {"0": weights})["0"]
    x, w = torch.cat(inputs[:2]), torch.cat(weights[:2])
    assert torch.allclose(found.gram, (x * w[:, None]).t() @ x / w.sum(), atol=1e-6)
    assert torch.allclose(found.magnitude, w @ x.abs() / w.sum(), atol=1e-6)
    error = torch.randn(2, 4)
    expected = 4 * (inputs[2] @ error.t()).square().sum() / 6
    assert found.held_error(error, torch.ones(2)) == pytest.approx(float(expected), rel=1e-4)


class Chain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])

    def forward(self, x: object, use_cache: bool, logits_to_keep: int) -> object:
        for layer in self.layers:
            x = layer(x)
        return x


def test_blocks_read_their_weights_when_their_turn_comes() -> None:
    torch.manual_seed(0)
    whole = Chain()
    weights = {f"layers.{n}": dict(layer.state_dict()) for n, layer in enumerate(whole.layers)}
    with torch.device("meta"):
        empty = Chain()
    read: list[str] = []

    def reading(path: str) -> dict[str, torch.Tensor]:
        read.append(path)
        return weights[path]

    control = stream_blocks(empty, list(weights), reading)
    x = torch.randn(2, 3, requires_grad=True)
    result = empty(x, False, 1)
    assert torch.allclose(result, whole(x, False, 1))
    assert read == list(weights)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    (expected,) = torch.autograd.grad(whole(x, False, 1).sum(), x)
    assert torch.allclose(gradient, expected)
    read.clear()
    calls = calls_of(empty, control, {"x": x}, dry=("layers.",), stop_at="layers.2")
    assert read == []
    assert list(calls) == list(weights)
    made = run_block(control.blocks["layers.0"], weights["layers.0"], calls["layers.0"], x)
    assert torch.allclose(made, whole.layers[0](x))
    assert isinstance(empty.layers[0], Streamed)
    assert empty.layers[0].in_features == 3
