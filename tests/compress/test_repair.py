from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.compress.repair import Moments, output_error, repaired  # noqa: E402


def _moments(x: torch.Tensor) -> Moments:
    return Moments.of(x)


def test_a_column_that_others_say_completely_is_replaced_without_loss() -> None:
    torch.manual_seed(0)
    base = torch.randn(200, 3)
    x = torch.cat([base, base @ torch.tensor([[1.0], [2.0], [-1.0]])], dim=1)
    weight = torch.randn(5, 4)
    keep = torch.tensor([0, 1, 2])
    new, shift = repaired(weight, _moments(x), keep, ridge=1e-9)
    assert torch.allclose(x[:, keep] @ new.T, x @ weight.T, atol=1e-3)
    assert shift.abs().max() == 0
    assert output_error(weight, _moments(x), keep, new) < 1e-3


def test_it_is_the_ridge_solution() -> None:
    torch.manual_seed(1)
    x, weight, keep = torch.randn(64, 6), torch.randn(4, 6), torch.tensor([1, 2, 5])
    moments = _moments(x)
    new, _ = repaired(weight, moments, keep, ridge=0.0)
    solved = torch.linalg.lstsq(x[:, keep].double(), (x @ weight.T).double()).solution.T
    assert torch.allclose(new.double(), solved, atol=1e-4)
    assert output_error(weight, moments, keep, new) < output_error(weight, moments, keep, weight[:, keep])


def test_with_a_bias_the_mean_of_what_is_gone_goes_there() -> None:
    x = torch.ones(50, 3) * torch.tensor([1.0, 2.0, 3.0]) + 0.01 * torch.randn(50, 3)
    weight, keep = torch.eye(3), torch.tensor([0, 1])
    new, shift = repaired(weight, _moments(x), keep, ridge=0.01, into_bias=True)
    after = x[:, keep] @ new.T + shift
    assert torch.allclose(after.mean(0), (x @ weight.T).mean(0), atol=1e-3)


def test_inputs_that_were_never_active_keep_their_weight() -> None:
    weight, keep = torch.randn(2, 4), torch.tensor([0, 3])
    new, shift = repaired(weight, _moments(torch.zeros(10, 4)), keep)
    assert torch.equal(new, weight[:, keep])
    assert shift.abs().max() == 0


def test_moments_of_parts_add_up() -> None:
    x = torch.randn(7, 3)
    whole, parts = Moments.of(x), Moments.of(x[:4])
    parts.add(x[4:])
    assert torch.allclose(whole.gram, parts.gram, atol=1e-5)
    assert torch.allclose(whole.total, parts.total, atol=1e-5)
    assert whole.tokens == parts.tokens == 7
