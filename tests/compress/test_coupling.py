from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")
from torch import Tensor  # noqa: E402

from foveola.compress.coupling import (  # noqa: E402
    Importance,
    PositionGates,
    block_means,
    by_modality,
    coupled_gradients,
    coupling,
)
from foveola.exchange import Invalid  # noqa: E402


def test_equal_gradients_cost_nothing_in_both_forms() -> None:
    g = torch.tensor([3.0, 4.0])
    assert float(coupling(g, g)) == pytest.approx(0, abs=1e-6)
    assert float(coupling(g, g, form="normalised")) == pytest.approx(0, abs=1e-6)


def test_figures_worked_out_by_hand() -> None:
    v, t = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 1.0])
    assert float(coupling(v, t, a=0.3)) == pytest.approx(0.3 * 1 + 0.7 * 2)
    assert float(coupling(v, t, a=0.3, form="normalised")) == pytest.approx(0.3 * 1 + 0.7 * 2 / 4)
    assert float(coupling(v, -v, a=1.0)) == pytest.approx(2)


def test_only_the_spec_form_rewards_gradients_that_vanish() -> None:
    v, t = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 1.0])
    assert float(coupling(v * 1e-3, t * 1e-3)) < float(coupling(v, t)) - 1
    assert float(coupling(v * 1e-3, t * 1e-3, form="normalised")) == pytest.approx(
        float(coupling(v, t, form="normalised")), rel=1e-3
    )


def test_wrong_settings_are_told() -> None:
    g = torch.ones(2)
    with pytest.raises(Invalid, match="a is 1.5; expected 0 to 1"):
        coupling(g, g, a=1.5)
    with pytest.raises(Invalid, match="form is 'other'; expected spec or normalised"):
        coupling(g, g, form="other")  # type: ignore[arg-type]


def test_its_derivative_in_the_logits_is_that_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(2))

    def value(logits: Tensor) -> Tensor:
        mask = logits.sigmoid()
        g_v, g_l = coupled_gradients((mask * x).sum().square(), (mask * y).sin().sum(), [logits])
        return coupling(g_v, g_l, form="normalised")

    logits = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(value, (logits,))


def test_a_loss_that_knows_nothing_of_a_logit_has_no_gradient_there() -> None:
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    g_v, g_l = coupled_gradients(a.square().sum(), b.square().sum(), [a, b])
    assert g_v.tolist() == [2, 2, 0, 0]
    assert g_l.tolist() == [0, 0, 2, 2]


def test_the_gates_derivative_is_the_sum_of_gradient_times_weight() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 3, bias=False)
    gates = PositionGates(torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    handle = layer.register_forward_pre_hook(gates.hook)
    loss = layer(torch.randn(2, 4, 6)).pow(3).sum()
    handle.remove()
    assert gates.values is not None
    through_gates, through_weights = torch.autograd.grad(loss, [gates.values, layer.weight])
    wanted = (through_weights * layer.weight).sum(0).view(3, 2).sum(1)
    assert torch.allclose(through_gates.sum((0, 1)), wanted, rtol=1e-4)


def test_gradients_are_told_apart_by_the_token_they_came_through() -> None:
    gradient = torch.tensor([[[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]])
    parts = by_modality(gradient, torch.tensor([[True, False, True]]))
    assert parts["vision"].tolist() == [101, 202]
    assert parts["text"].tolist() == [10, 20]


def test_no_modality_drowns_the_other() -> None:
    importance = Importance({"layer": 2})
    importance.add({"vision": {"layer": torch.tensor([1000.0, 0.0])}, "text": {"layer": torch.tensor([0.0, 1.0])}})
    first, second = importance.taylor()["layer"].tolist()
    assert first == pytest.approx(second)


def test_signs_of_samples_do_not_cancel_and_the_fisher_form_squares_the_sum() -> None:
    importance = Importance({"layer": 1}, {"text": 1.0})
    for sign in (1.0, -1.0):
        importance.add({"text": {"layer": torch.tensor([2.0 * sign])}})
    assert importance.taylor()["layer"].item() == pytest.approx(2.0)
    assert importance.fisher()["layer"].item() == pytest.approx(0.5 * 4)


def test_block_means_stay_in_their_block() -> None:
    assert block_means(torch.tensor([1.0, 3.0, 10.0, 20.0, 7.0]), 2).tolist() == [2, 2, 15, 15, 7]


def test_the_default_share_is_that_of_the_description() -> None:
    v, t = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert math.isclose(float(coupling(v, t)), 0.3, rel_tol=1e-5)
