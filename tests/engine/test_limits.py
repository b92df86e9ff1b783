"""Limits of the sampling options: the field is named, the value shown, the range told."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from foveola.engine.limits import check_sampling
from foveola.exchange import Invalid, Sampling


def with_field(field: str, value: Any) -> Sampling:
    return dataclasses.replace(Sampling(), **{field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_tokens", 0, "max_tokens is 0; expected a whole number from 1 to 128."),
        ("max_tokens", -5, "max_tokens is -5; expected a whole number from 1 to 128."),
        ("max_tokens", 129, "max_tokens is 129; expected a whole number from 1 to 128."),
        ("max_tokens", True, "max_tokens is True; expected a whole number from 1 to 128."),
        ("max_tokens", 2.0, "max_tokens is 2.0; expected a whole number from 1 to 128."),
        pytest.param("max_tokens", 10**5000, "max_tokens is a number of thousands of digits; expected", id="huge"),
        ("temperature", -0.1, "temperature is -0.1; expected a finite number of at least 0."),
        ("temperature", float("nan"), "temperature is nan; expected a finite number"),
        ("temperature", float("inf"), "temperature is inf; expected a finite number"),
        ("temperature", 10**400, "temperature is 1000000"),
        ("temperature", "hot", "temperature is 'hot'; expected a finite number"),
        ("temperature", None, "temperature is None; expected a finite number"),
        ("top_p", 0, "top_p is 0; expected a number above 0 and at most 1."),
        ("top_p", 1.5, "top_p is 1.5; expected a number above 0 and at most 1."),
        ("top_k", -1, "top_k is -1; expected a whole number from 0 to 2147483647."),
        ("seed", -1, "seed is -1; expected a whole number from 0 to 18446744073709551615."),
        ("seed", 2**64, "seed is 18446744073709551616; expected"),
        ("seed", [1], "seed is a list; expected a whole number"),
        ("logprobs", 21, "logprobs is 21; expected a whole number from 0 to 20."),
        ("stop", ("",), "stop holds ''; expected strings of 1 to 256 characters."),
        ("stop", ("a" * 257,), "expected strings of 1 to 256 characters."),
        ("stop", (3,), "stop holds 3; expected strings"),
        ("stop", ("a",) * 17, "stop holds 17 strings; expected at most 16."),
        ("stop", "abc", "stop holds not a sequence of strings; expected at most 16."),
    ],
)
def test_refused_with_the_name_of_the_field(field: str, value: Any, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_sampling(with_field(field, value), max_length=128)
    assert caught.value.field == field
    assert message in caught.value.message
    assert len(caught.value.message) < 160


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(max_tokens=128, temperature=0, top_p=1, top_k=0, seed=0),
        Sampling(temperature=1e-300, top_p=1e-9, top_k=2**31 - 1, seed=2**64 - 1, stop=("x",) * 16),
    ],
)
def test_the_edges_are_allowed(sampling: Sampling) -> None:
    assert check_sampling(sampling, max_length=128) is None
