"""The sampler: greedy is argmax, truncation keeps what it says, seeds repeat, NaN is never drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foveola.engine.sampler import Sampler
from foveola.exchange import Sampling, Unavailable

FLOATS = st.floats(-40, 40, width=32)
ROWS = hnp.arrays(np.float32, st.integers(1, 60), elements=FLOATS)
ANY_ROWS = hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(allow_nan=True, allow_infinity=True, width=32))


def reference_logprobs(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


@given(ROWS)
def test_greedy_takes_the_first_largest(logits: np.ndarray) -> None:
    before = logits.copy()
    token, logprob = Sampler(Sampling()).draw(logits)
    assert token == int(logits.argmax())
    assert logprob == pytest.approx(reference_logprobs(logits)[token], abs=1e-4)
    assert np.array_equal(before, logits)


@given(ROWS, st.integers(0, 2**64 - 1), st.floats(0.05, 5), st.integers(0, 70), st.floats(0.01, 1))
def test_same_seed_gives_the_same_tokens(logits: np.ndarray, seed: int, heat: float, top_k: int, top_p: float) -> None:
    options = Sampling(temperature=heat, top_k=top_k, top_p=top_p, seed=seed)
    one, other = Sampler(options), Sampler(options)
    assert [one.draw(logits) for _ in range(4)] == [other.draw(logits) for _ in range(4)]


@given(ROWS, st.integers(1, 10), st.integers(0, 1000))
def test_top_k_draws_among_the_k_largest(logits: np.ndarray, top_k: int, seed: int) -> None:
    token, logprob = Sampler(Sampling(temperature=3.0, top_k=top_k, seed=seed)).draw(logits)
    assert np.count_nonzero(logits > logits[token]) < top_k
    assert logprob == pytest.approx(reference_logprobs(logits)[token], abs=1e-4)


@given(ROWS, st.floats(0.01, 0.999), st.integers(0, 1000))
def test_top_p_draws_inside_the_nucleus(logits: np.ndarray, top_p: float, seed: int) -> None:
    token, _ = Sampler(Sampling(temperature=1.0, top_p=top_p, seed=seed)).draw(logits)
    probability = np.exp(reference_logprobs(logits))
    likelier = probability[probability > probability[token] * (1 + 1e-5)].sum()
    assert likelier < top_p + 1e-6


@given(ANY_ROWS, st.sampled_from([0.0, 1e-320, 0.7, 1e300]), st.integers(0, 5), st.floats(0.01, 1))
def test_broken_numbers_are_never_drawn(logits: np.ndarray, heat: float, top_k: int, top_p: float) -> None:
    sampler = Sampler(Sampling(temperature=heat, top_k=top_k, top_p=top_p, seed=1))
    drawable = np.isfinite(logits) | (logits == np.inf)
    if not drawable.any():
        with pytest.raises(Unavailable, match="no number for any token; expected finite scores"):
            sampler.draw(logits)
        return
    token, logprob = sampler.draw(logits)
    assert not np.isnan(logits[token])
    assert logprob <= 1e-6
    if heat != 1e300:
        assert logits[token] != -np.inf


def test_frequencies_follow_the_tempered_softmax() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampler = Sampler(Sampling(temperature=2.0, seed=7))
    counts = np.bincount([sampler.draw(logits)[0] for _ in range(4000)], minlength=4) / 4000
    expected = np.sqrt([0.5, 0.3, 0.15, 0.05])
    assert counts == pytest.approx(expected / expected.sum(), abs=0.03)


def test_ties_at_the_edge_of_top_k_go_to_the_lower_number() -> None:
    logits = np.array([1, 2, 1, 1], np.float32)
    drawn = {Sampler(Sampling(temperature=9.0, top_k=2, seed=seed)).draw(logits)[0] for seed in range(64)}
    assert drawn == {0, 1}


def test_a_nucleus_smaller_than_the_best_token_is_that_token() -> None:
    logits = np.array([0, 5, 1], np.float32)
    drawn = {Sampler(Sampling(temperature=1.0, top_p=1e-9, seed=seed)).draw(logits)[0] for seed in range(32)}
    assert drawn == {1}


def test_without_a_seed_two_requests_differ() -> None:
    logits = np.zeros(1000, np.float32)
    one, other = Sampler(Sampling(temperature=1.0)), Sampler(Sampling(temperature=1.0))
    assert [one.draw(logits)[0] for _ in range(8)] != [other.draw(logits)[0] for _ in range(8)]


@given(ROWS, st.integers(1, 20))
def test_the_likeliest_tokens_are_told_with_their_probabilities(logits: np.ndarray, count: int) -> None:
    told = Sampler(Sampling()).top(logits, count)
    expected = reference_logprobs(logits)
    assert len(told) == min(count, logits.size)
    assert [logprob for _, logprob in told] == pytest.approx(sorted(expected, reverse=True)[: len(told)], abs=1e-4)
    assert all(logprob == pytest.approx(expected[token], abs=1e-4) for token, logprob in told)
