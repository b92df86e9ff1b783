from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from foveola.compress.clip import RATIOS, search_clip  # noqa: E402
from foveola.compress.gptq import descended, gptq, nearest  # noqa: E402
from foveola.compress.scaling import Reader, rounded, search_scales, weighted_error  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.packed import pack  # noqa: E402

pytestmark = pytest.mark.torch
FORM = Format(4, 32)


def correlated(inner: int, *, seed: int = 0) -> torch.Tensor:
    """Second moments of inputs of which a few are loud and all are mixtures of few causes."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(4 * inner, 16, generator=draw) @ torch.randn(16, inner, generator=draw)
    x += 0.5 * torch.randn(x.shape, generator=draw)
    x[:, ::17] *= 12
    return x.t() @ x / len(x)


def matrix(rows: int, inner: int) -> torch.Tensor:
    return torch.randn(rows, inner, generator=torch.Generator().manual_seed(9)) * 0.05


def error(weight: torch.Tensor, other: torch.Tensor, moments: torch.Tensor) -> float:
    return weighted_error(other - weight, moments, torch.ones(len(weight)))


@pytest.mark.parametrize("inner", [128, 100])
@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_errs_less_than_rounding_where_inputs_are_correlated(bits: int, inner: int) -> None:
    form = Format(bits, 32)
    weight, moments = matrix(48, inner), correlated(inner)
    ours, plain = gptq(weight, moments, form), pack(weight, form)
    assert ours.dequantised().shape == weight.shape
    assert error(weight, ours.dequantised(), moments) < 0.5 * error(weight, plain.dequantised(), moments)


def test_descent_only_falls_and_keeps_the_grid() -> None:
    weight, moments = matrix(48, 100), correlated(100)
    for start in (gptq(weight, moments, FORM), pack(weight, FORM)):
        again = descended(start, weight, moments, damping=1e-6)
        before, after = (error(weight, one.dequantised(), moments) for one in (start, again))
        assert after < before
        assert torch.equal(again.scales, start.scales)
        assert torch.equal(again.zeros, start.zeros)


def test_gptq_takes_the_loudest_columns_first_and_leaves_no_trace_of_it() -> None:
    weight, moments = matrix(48, 128), correlated(128)
    turned = torch.randperm(128, generator=torch.Generator().manual_seed(1))
    wide = Format(4, 128)  # one block, so that the grid is the same however columns lie
    plain = gptq(weight, moments, wide).dequantised()
    assert torch.equal(gptq(weight[:, turned], moments[turned][:, turned], wide).dequantised(), plain[:, turned])


def test_gptq_is_rounding_where_inputs_are_independent() -> None:
    weight = matrix(8, 64)
    ours = gptq(weight, torch.eye(64), FORM)
    assert torch.equal(ours.dequantised(), pack(weight, FORM).dequantised())


def test_moments_of_too_few_samples_do_not_stop_it() -> None:
    weight = matrix(8, 64)
    moments = torch.zeros(64, 64)
    moments[0, 0] = 1.0
    assert torch.isfinite(gptq(weight, moments, FORM).dequantised()).all()
    assert torch.isfinite(gptq(weight, torch.zeros(64, 64), FORM).dequantised()).all()


def test_padding_stands_for_nothing() -> None:
    weight = matrix(4, 40)
    packed = gptq(weight, correlated(40), FORM)
    assert packed.inner == 40
    assert packed.values.shape == (4, 2, 16)
    assert (packed.dequantised() - weight).abs().max() < 0.2


def test_the_clip_is_never_worse_under_the_blocks_own_moments() -> None:
    weight, moments = matrix(16, 64), correlated(64)
    weight[:, 5] *= 6  # one large weight that hardly matters
    moments[5] *= 0.01
    moments[:, 5] *= 0.01
    shrink = search_clip(weight, moments, FORM.bits, FORM.block)
    assert shrink.shape == (16, 2)
    assert set(shrink.flatten().tolist()) <= {float(torch.tensor(r)) for r in RATIOS}
    assert (shrink[:, 0] < 1).float().mean() > 0.5
    own = torch.block_diag(moments[:32, :32], moments[32:, 32:])
    clipped, whole = nearest(weight, FORM, shrink).dequantised(), pack(weight, FORM).dequantised()
    assert error(weight, clipped, own) <= error(weight, whole, own)


def test_scales_spare_the_channels_that_are_loud() -> None:
    weight, moments = matrix(64, 128), correlated(128)
    reader = Reader(weight, torch.ones(64), FORM)
    magnitude = moments.diagonal().sqrt()
    scale, before, after = search_scales([reader], moments, magnitude, torch.arange(128))
    assert after < 0.75 * before
    assert scale[::17].mean() > 1.5 * scale.mean()
    assert after == pytest.approx(error(weight, rounded(weight * scale, FORM) / scale, moments), rel=1e-4)


def test_columns_of_one_channel_share_a_scale() -> None:
    weight, moments = matrix(64, 128), correlated(128)
    channel = torch.arange(64).repeat(2)
    scale, _, _ = search_scales(
        [Reader(weight, torch.ones(64), FORM)], moments, moments.diagonal().sqrt(), channel, ratios=5
    )
    assert scale.shape == (64,)


def test_rows_that_do_not_matter_are_not_looked_at() -> None:
    weight, moments = matrix(64, 128), correlated(128)
    importance = torch.zeros(64)
    _, before, after = search_scales(
        [Reader(weight, importance, FORM)], moments, moments.diagonal().sqrt(), torch.arange(128), ratios=2
    )
    assert (before, after) == (0.0, 0.0)
