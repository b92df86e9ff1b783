from __future__ import annotations

import math

import numpy as np
import pytest

from foveola.exchange import Invalid
from foveola.learn.federate.codec import compress
from foveola.learn.federate.options import FederationOptions
from foveola.learn.federate.privacy import epsilon, noised
from foveola.learn.federate.rounds import Federation
from foveola.learn.federate.wire import Update, digest, pack


def test_noise_is_a_multiple_of_what_one_node_can_move() -> None:
    mean = np.zeros(40_000, np.float32)
    told = noised(mean, updates=20, clip=1.0, noise=2.0, rng=np.random.default_rng(0))
    assert told.std() == pytest.approx(2.0 / 20, rel=0.02)


def test_epsilon_is_that_of_the_paper() -> None:
    """Bun and Steinke's conversion, by hand: 50 rounds at noise 5 spend rho = 1."""
    assert epsilon(50, 5.0, 1e-5) == pytest.approx(1 + 2 * math.sqrt(math.log(1e5)))
    assert epsilon(1, 0, 1e-5) == math.inf
    assert epsilon(10, 1, 1e-5) < epsilon(20, 1, 1e-5)


def test_noise_and_rules_that_it_is_not_promised_for_exclude_one_another() -> None:
    with pytest.raises(
        Invalid, match="noise is promised for the rule mean only, and the rule is bounded, which"
    ) as caught:
        FederationOptions(noise=1.0)
    assert caught.value.field == "noise"
    with pytest.raises(Invalid, match="noise is -1; expected 0, or a multiple"):
        FederationOptions(rule="mean", noise=-1)


def test_under_noise_claims_have_no_weight_and_no_two_closings_are_the_same() -> None:
    def closed(noise: float, claims: tuple[int, int]) -> np.ndarray:
        agreed = FederationOptions(width=8, rule="mean", noise=noise, server="plain", keep=1.0)
        federation = Federation.create(agreed)
        base = digest(federation.prompt)
        for node, (claim, value) in enumerate(zip(claims, (1.0, -1.0), strict=True), 1):
            sparse = compress(np.full(128, value / 128, np.float32), 1.0)
            federation.accept(node, pack(Update(16, 8, 0, node, base, claim, sparse)))
        federation.close()
        return federation.prompt

    assert np.abs(closed(0, (10, 20))).max() > 1e-3  # the larger claim weighs more
    assert np.abs(closed(1e-6, (10, 20))).max() < 1e-4
    assert not np.array_equal(closed(1.0, (1, 1)), closed(1.0, (1, 1)))
