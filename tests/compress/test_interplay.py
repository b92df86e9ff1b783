from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.compress.interplay import measure_interplay  # noqa: E402
from tests.compress.test_sensitivity import Two, _model  # noqa: E402

pytestmark = pytest.mark.torch


def divergence(model: Two, x: torch.Tensor, errors: dict[str, torch.Tensor]) -> float:
    before = model(x).log_softmax(-1)
    for path, error in errors.items():
        model.get_submodule(path).weight.add_(error)
    after = model(x).log_softmax(-1)
    for path, error in errors.items():
        model.get_submodule(path).weight.sub_(error)
    return float((before.exp() * (before - after)).sum(-1).mean())


def test_errors_that_cancel_are_seen_to_cancel() -> None:
    """Both layers read x; the opposite error in the second undoes that in the first where tanh is steep."""
    model = _model()
    x = 0.1 * torch.randn(16, 6)
    error = 0.05 * torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
    model.left.bias.zero_()
    errors = {("left", "a"): error, ("right", "a"): -error, ("right", "b"): error}
    found = measure_interplay(model, errors, [lambda: model(x)], directions=400)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    alone, opposite, same = (
        divergence(model, x, chosen)
        for chosen in ({"left": error}, {"left": error, "right": -error}, {"left": error, "right": error})
    )
    assert found.alone()["left", "a"] == pytest.approx(alone, rel=0.2)
    assert found.cost({"left": "a", "right": "b"}) == pytest.approx(same, rel=0.2)
    assert found.cost({"left": "a", "right": "a"}) < 0.1 * alone
    assert opposite < 0.1 * alone
    assert found.cost({"left": "exact"}) == 0
