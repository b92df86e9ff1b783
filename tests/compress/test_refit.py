from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from foveola.compress.gptq import gptq  # noqa: E402
from foveola.compress.refit import polished, refitted  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.packed import pack  # noqa: E402
from tests.compress.test_gptq import correlated, error, matrix  # noqa: E402

pytestmark = pytest.mark.torch
FORM = Format(4, 32)


@pytest.mark.parametrize("inner", [128, 100])
def test_scales_that_fit_their_codes_err_less(inner: int) -> None:
    weight, moments = matrix(48, inner), correlated(inner)
    for start in (gptq(weight, moments, FORM), pack(weight, FORM)):
        fitted = refitted(start, weight, moments, damping=1e-6)
        before, after = (error(weight, one.dequantised(), moments) for one in (start, fitted))
        assert after < before
        assert torch.equal(fitted.values, start.values)
        assert torch.equal(fitted.zeros, start.zeros)
        assert torch.equal(fitted.scales, fitted.scales.half().float())


def test_one_block_gets_the_scale_of_least_squares() -> None:
    weight, moments = matrix(4, 32), torch.eye(32)
    start = pack(weight, FORM)
    signed = (start.codes().float() - start.zero_points()[..., None].float()).flatten(1)
    wanted = (signed * weight).sum(1) / signed.square().sum(1)
    assert torch.allclose(refitted(start, weight, moments).scales[:, 0], wanted, rtol=2e-2)


def test_scales_and_codes_in_turn_err_less_than_either_alone() -> None:
    weight, moments = matrix(48, 128), correlated(128)
    start = gptq(weight, moments, FORM, damping=1e-6)
    once = refitted(start, weight, moments, damping=1e-6)
    again = polished(start, weight, moments, damping=1e-6)
    assert error(weight, again.dequantised(), moments) < error(weight, once.dequantised(), moments)
    assert not torch.equal(again.values, start.values)


def test_a_row_of_nothing_stays_nothing() -> None:
    weight, moments = matrix(4, 64), correlated(64)
    weight[1] = 0
    made = polished(pack(weight, FORM), weight, moments)
    assert torch.isfinite(made.scales).all()
    assert made.dequantised()[1].abs().max() < 1e-3
