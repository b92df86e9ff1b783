from __future__ import annotations

import torch
from torch import nn

from foveola.learn.distil.averaging import Average, EarlyStop, between, snapshot


def test_the_average_comes_to_where_the_weights_stay() -> None:
    layer = nn.Linear(2, 2)
    average = Average(layer, 0.9)
    with torch.no_grad():
        layer.weight.fill_(5.0)
    for _ in range(100):
        average.follow(layer)
    assert torch.allclose(average.weights["weight"], torch.full((2, 2), 5.0), atol=1e-2)


def test_noise_is_averaged_away() -> None:
    layer = nn.Linear(8, 8, bias=False)
    average = Average(layer, 0.95)
    noise = torch.Generator().manual_seed(0)
    for _ in range(200):
        with torch.no_grad():
            layer.weight.copy_(torch.randn(8, 8, generator=noise))
        average.follow(layer)
    assert float(average.weights["weight"].std()) < 0.3 * float(layer.weight.detach().std())


def test_a_snapshot_does_not_follow() -> None:
    layer = nn.Linear(2, 2)
    kept = snapshot(layer)
    with torch.no_grad():
        layer.weight.add_(1)
    assert not torch.equal(kept["weight"], layer.weight)


def test_weights_between_two() -> None:
    out = between({"w": torch.zeros(2)}, {"w": torch.ones(2)}, 0.25)
    assert out["w"].tolist() == [0.25, 0.25]


def test_it_stops_after_as_many_looks_without_progress() -> None:
    stop = EarlyStop(2)
    assert [stop.look(score) for score in (0.5, 0.6, 0.6)] == [True, True, True]  # the later of equals
    assert not stop.over
    assert not stop.look(0.55)
    assert stop.over
