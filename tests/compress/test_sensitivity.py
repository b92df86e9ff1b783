from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")
from torch import nn  # noqa: E402

from foveola.compress.sensitivity import Sensitivity, measure, probe, relative_weight_error, tried_cost  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402


class Two(nn.Module):
    """Two layers over one tensor, a third behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(6, 5, bias=False)
        self.top = nn.Linear(5, 7)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(torch.tanh(self.left(x)) + self.right(x))


def _model() -> Two:
    torch.manual_seed(0)
    return Two().requires_grad_(False)


def test_the_cost_of_the_last_layer_is_the_second_order_kl() -> None:
    """For logits = W x the Fisher information is known: diag(p) - p pᵀ; its diagonal is what h estimates."""
    model = _model()
    x = torch.randn(4, 6)
    found = measure(model, ["top"], [lambda: model(x)], draws=3000)["top"]
    p = model(x).softmax(-1)
    assert torch.allclose(found.fisher, (p * (1 - p)).mean(0), atol=0.02)
    hidden = torch.tanh(model.left(x)) + model.right(x)
    assert torch.allclose(found.gram, hidden.T @ hidden / 4, atol=1e-5)


def test_probes_have_the_second_moments_of_drawn_labels() -> None:
    p = torch.tensor([[0.9, 0.07, 0.03]])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([probe(p, generator) for _ in range(20000)])
    assert torch.allclose(drawn.T @ drawn / len(drawn), p[0].diag() - p.T @ p, atol=5e-3)


def test_layers_over_one_tensor_share_its_moments() -> None:
    model = _model()
    found = measure(model, ["left", "right", "top"], [lambda: model(torch.randn(3, 6))])
    assert found["left"].gram is found["right"].gram
    assert found["top"].gram.shape == (5, 5)


def test_predicted_and_measured_divergence_agree_for_small_errors() -> None:
    model = _model()
    x = torch.randn(64, 6)
    found = measure(model, ["left"], [lambda: model(x)], draws=40)["left"]
    before = model(x).log_softmax(-1)
    weight = model.left.weight.clone()
    rounded = weight + 0.05 * torch.randn(weight.shape)
    model.left.weight.copy_(rounded)
    after = model(x).log_softmax(-1)
    measured = float((before.exp() * (before - after)).sum(-1).mean())
    assert found.cost(weight, rounded) == pytest.approx(measured, rel=0.5)


def test_a_trial_is_the_divergence_itself_and_leaves_the_model_as_it_was() -> None:
    model = _model()
    x = torch.randn(8, 6)
    before, weight = model(x).log_softmax(-1), model.left.weight
    rounded = weight + torch.randn(weight.shape)
    found = tried_cost(model, "left", rounded, [lambda: model(x[:5]), lambda: model(x[5:])], [before[:5], before[5:]])
    assert model.left.weight is weight
    model.left.weight = nn.Parameter(rounded, requires_grad=False)
    after = model(x).log_softmax(-1)
    assert found == pytest.approx(float((before.exp() * (before - after)).sum(-1).mean()), rel=1e-4)


def test_errors_in_figures_worked_out_by_hand() -> None:
    one = Sensitivity(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([2.0]))
    weight, rounded = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 2.0]])
    assert one.cost(weight, rounded) == pytest.approx(0.5 * 2 * 4)
    assert one.relative_error(weight, rounded) == pytest.approx((4 / 8) ** 0.5)
    assert relative_weight_error(weight, rounded) == pytest.approx(1 / 5**0.5)


def test_a_layer_that_no_sample_reaches_is_told() -> None:
    model = _model()
    with pytest.raises(Invalid, match="no calibration sample reached unused; give samples with pictures"):
        measure(model, ["top", "unused"], [lambda: model(torch.randn(3, 6))])
