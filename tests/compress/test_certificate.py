from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.compress.certificate import (  # noqa: E402
    Contribution,
    Error,
    Link,
    amplification,
    layer_bound,
    mean_gain,
    propagate,
    spectral_gain,
)


def test_no_rounding_of_a_layer_exceeds_its_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        x = torch.randn(40, 8, generator=generator) * torch.rand(8, generator=generator)
        weight = torch.randn(5, 8, generator=generator)
        rounded = weight + 0.1 * torch.randn(5, 8, generator=generator)
        measured = float((x @ (weight - rounded).T).norm() / (x @ weight.T).norm())
        assert measured <= layer_bound(weight, rounded, x.T @ x) * (1 + 1e-5)


def test_the_bound_is_reached_where_the_error_lies_in_the_worst_direction() -> None:
    x = torch.diag(torch.tensor([3.0, 1.0]))
    weight = torch.tensor([[1.0, 1.0]])
    rounded = weight - torch.tensor([[0.1, 0.0]])
    measured = float((x @ (weight - rounded).T).norm() / (x @ weight.T).norm())
    assert layer_bound(weight, rounded, x.T @ x) == pytest.approx(measured)
    assert amplification(weight, x.T @ x) == pytest.approx(2**0.5 * 3 / 10**0.5)


def test_the_gain_of_a_linear_map_is_its_largest_singular_value() -> None:
    torch.manual_seed(0)
    matrix, x = torch.randn(6, 6), torch.randn(6)
    wanted = float(torch.linalg.svdvals(matrix)[0] * x.norm() / (matrix @ x).norm())
    assert spectral_gain(lambda v: matrix @ v, x, iterations=60) == pytest.approx(wanted, rel=0.02)
    assert spectral_gain(lambda v: v * 0, x) == 0
    rms = float(matrix.norm() / 6**0.5 * x.norm() / (matrix @ x).norm())
    assert mean_gain(lambda v: matrix @ v, x, probes=400) == pytest.approx(rms, rel=0.1)


def test_the_residual_path_is_part_of_the_gain() -> None:
    x = torch.ones(4)
    assert spectral_gain(lambda v: v + 0.5 * v, x) == pytest.approx(1.0)


def test_propagation_in_figures_worked_out_by_hand() -> None:
    links = [
        Link("0", 2.0, 1.0, (Contribution("0.up", 0.1, 0.03), Contribution("0.down", 0.2, 0.04))),
        Link("1", 3.0, 2.0, (Contribution("1.up", 0.1, 0.0),)),
    ]
    first, second = propagate(links)
    assert first.bound == pytest.approx(0.3)
    assert first.expected == pytest.approx(0.05)
    assert second.bound == pytest.approx(0.9 + 0.1 * 1.9)
    assert second.expected == pytest.approx(0.1)


def test_a_chain_of_rounded_layers_stays_below_the_certificate() -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 8)
    weights = [torch.randn(8, 8) * 0.4 for _ in range(4)]
    rounded = [weight + 0.01 * torch.randn(8, 8) for weight in weights]
    links, exact, off = [], x, x
    for index, (weight, other) in enumerate(zip(weights, rounded, strict=True)):
        y = exact + exact @ weight.T

        def block(v: torch.Tensor, weight: torch.Tensor = weight) -> torch.Tensor:
            return v + v @ weight.T

        into_output = float((exact @ weight.T).norm() / y.norm())
        own = Contribution("w", layer_bound(weight, other, exact.T @ exact) * into_output, 0.0)
        links.append(Link(str(index), spectral_gain(block, exact, iterations=40), 1.0, (own,)))
        off, exact = off + off @ other.T, y
    measured = float((off - exact).norm() / exact.norm())
    last = propagate(links)[-1]
    assert measured <= last.bound
    assert Error("3", last.bound, last.expected, measured).tightness == pytest.approx(last.bound / measured)
    assert Error("3", 1.0, 1.0).tightness is None
