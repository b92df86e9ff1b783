from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from foveola.compress.moments import Moments, gather_moments  # noqa: E402

pytestmark = pytest.mark.torch


def test_moments_are_of_the_seen_samples_and_errors_of_those_held_out() -> None:
    draw = torch.Generator().manual_seed(0)
    block = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)).requires_grad_(False)
    inputs = [torch.randn(5, 6, generator=draw) for _ in range(3)]
    weights = [torch.ones(5), torch.arange(1.0, 6.0), torch.full((5,), 2.0)]
    found = gather_moments(block, lambda sample: block(inputs[sample]), [0, 1], [2], {"0": weights})["0"]
    w, x = torch.cat(weights[:2]), torch.cat(inputs[:2])
    assert torch.allclose(found.gram, (x * w[:, None]).t() @ x / w.sum(), atol=1e-6)
    assert torch.allclose(found.magnitude, w @ x.abs() / w.sum())
    error, importance = torch.randn(4, 6, generator=draw), torch.tensor([1.0, 0.0, 2.0, 1.0])
    expected = 2 * ((inputs[2] @ error.t()).square() * importance).sum() / 5
    assert found.held_error(error, importance) == pytest.approx(float(expected), rel=1e-5)


def test_shrunk_moments_are_those_of_the_divided_input() -> None:
    draw = torch.Generator().manual_seed(1)
    x, scale = torch.randn(9, 5, generator=draw), torch.rand(5, generator=draw) + 0.5
    found = Moments(x.t() @ x / 9, x.abs().mean(0), x.clone())
    storage = found.gram.data_ptr()
    found.shrink(scale)
    divided = x / scale
    assert torch.allclose(found.gram, divided.t() @ divided / 9, atol=1e-6)
    assert torch.allclose(found.magnitude, divided.abs().mean(0))
    assert torch.allclose(found.held, divided)
    assert found.gram.data_ptr() == storage  # nothing as large was made beside it
