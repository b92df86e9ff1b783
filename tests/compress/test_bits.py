from __future__ import annotations

import itertools

import numpy as np
import pytest

from foveola.exchange import Invalid

pytest.importorskip("scipy", reason="the workshop is not installed")

from foveola.compress.bits import Assignment, Limits, Option, assign

_OPTIONS = {
    "a": [Option("int2", 9.0, 2, 2, decode_ms=3), Option("int4", 1.0, 4, 4, decode_ms=2), Option("int8", 0.0, 8, 8)],
    "b": [Option("int2", 2.0, 2, 2, decode_ms=3), Option("int4", 0.5, 4, 4, decode_ms=2), Option("int8", 0.0, 8, 8)],
}


def test_without_limits_every_layer_gets_the_least_cost() -> None:
    found = assign(_OPTIONS, Limits())
    assert found.storage == {"a": "int8", "b": "int8"}
    assert (found.cost, found.bytes) == (0, 16)


def test_bytes_go_where_they_are_worth_most() -> None:
    assert assign(_OPTIONS, Limits(bytes=6)).storage == {"a": "int4", "b": "int2"}
    assert assign(_OPTIONS, Limits(bytes=10)).storage == {"a": "int8", "b": "int2"} or assign(
        _OPTIONS, Limits(bytes=10)
    ).cost == pytest.approx(1.5)


def test_average_bits_count_every_weight_once() -> None:
    found = assign(_OPTIONS, Limits(bits=3.0), weights={"a": 10, "b": 30})
    assert found.storage == {"a": "int4", "b": "int2"}
    assert found.bits == pytest.approx(2.5)
    with pytest.raises(Invalid, match="the layers' sizes were not given"):
        assign(_OPTIONS, Limits(bits=3.0))


def test_latency_is_a_limit_like_any_other() -> None:
    assert assign(_OPTIONS, Limits(bytes=12, decode_ms=2)).storage == {"a": "int8", "b": "int4"}


def test_tied_layers_get_the_same() -> None:
    found = assign(_OPTIONS, Limits(bytes=12), ties=[("a", "b")])
    assert found.storage == {"a": "int4", "b": "int4"}


def test_limits_that_nothing_keeps_are_told_with_the_least() -> None:
    with pytest.raises(Invalid, match="bytes may be at most 3, but the least that these layers take is 4. Raise"):
        assign(_OPTIONS, Limits(bytes=3))
    with pytest.raises(Invalid, match="no assignment keeps all the limits at once"):
        assign(_OPTIONS, Limits(bytes=4, decode_ms=3))
    with pytest.raises(Invalid, match="there is no layer"):
        assign({}, Limits())


def test_it_is_the_optimum_of_all_combinations() -> None:
    rng = np.random.default_rng(0)
    options = {
        str(layer): [Option(str(bits), float(rng.random() * 2.0**-bits), float(bits * 10)) for bits in (2, 3, 4, 8)]
        for layer in range(6)
    }
    budget = 200.0
    best = min(
        sum(one.cost for one in combination)
        for combination in itertools.product(*options.values())
        if sum(one.bytes for one in combination) <= budget
    )
    found = assign(options, Limits(bytes=budget))
    assert isinstance(found, Assignment)
    assert found.cost == pytest.approx(best)
    assert found.bytes <= budget
