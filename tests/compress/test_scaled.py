from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from foveola.compress.scaled import ScaledLinear  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.packed import pack  # noqa: E402
from tests.compress.test_gptq import matrix  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("inner", [64, 40])
def test_it_multiplies_and_learns_as_the_weights_would(inner: int) -> None:
    packed = pack(matrix(6, inner), Format(4, 32))
    layer = ScaledLinear(packed, torch.ones(6))
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, inner, generator=draw, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    weight = packed.dequantised().requires_grad_()
    made, wanted = layer(x), F.linear(twin, weight, torch.ones(6))
    assert torch.allclose(made, wanted, atol=1e-6)
    probe = torch.randn(2, 5, 6, generator=draw)
    made.backward(probe)
    wanted.backward(probe)
    assert torch.allclose(x.grad, twin.grad, atol=1e-6)
    by_block = F.pad(weight.grad * weight.detach(), (0, -inner % 32)).view(6, -1, 32).sum(-1)
    assert torch.allclose(layer.change.grad, by_block, atol=1e-5)  # a change of 1 is one time the weights
    assert torch.allclose(layer.bias.grad, probe.sum((0, 1)), atol=1e-5)


def test_scales_stay_what_16_bits_hold() -> None:
    layer = ScaledLinear(pack(matrix(6, 32), Format(4, 32)), None)
    layer.change.data.fill_(-2)
    assert float(layer.scales().detach().min()) == 2.0**-14
