"""Whether prompts get a layout of their own: the choice, told apart from the clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from foveola.artifact import Bundle
from foveola.lower import plan_phases
from foveola.lower.plan_command import phases_figures, phases_told
from foveola.lower.plan_phases import MIB, measure_phases

pytestmark = pytest.mark.torch


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, float]], None]:
    """Has the clock say these seconds per level."""

    def say(seconds: dict[int, float]) -> None:
        monkeypatch.setattr(plan_phases, "_seconds", lambda *rest: seconds)

    return say


def phases(bundle: Bundle, memory_mib: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = measure_phases(bundle, threads=1, prompt=8, memory_mib=memory_mib, rounds=1)["phases"]
    return found


def test_a_second_layout_is_taken_where_it_pays(
    compiled: Callable[[str], Bundle], timed: Callable[[dict[int, float]], None]
) -> None:
    bundle = compiled("int4")
    timed({4: 2.0, 1: 1.5})
    chosen = phases(bundle)
    assert (chosen["prefill_level"], chosen["decode_level"], chosen["saved_ms"]) == (1, 4, 500.0)
    assert chosen["prefill_ms"] == {"4": 2000.0, "1": 1500.0}
    for seconds in ({4: 2.0, 1: 1.95}, {4: 1.0, 1: 1.5}):
        timed(seconds)
        assert phases(bundle)["prefill_level"] is None


def test_memory_bounds_it(compiled: Callable[[str], Bundle], timed: Callable[[dict[int, float]], None]) -> None:
    bundle = compiled("int4")
    timed({4: 2.0, 1: 1.0})
    extra = phases(bundle)["extra_mib"]
    graphs = sum(Path(bundle.file(name)).stat().st_size for name in bundle.files if name.endswith(".onnx")) / MIB
    assert 0 < extra < graphs
    tight, enough = phases(bundle, graphs + extra / 2), phases(bundle, graphs + 2 * extra)
    assert (tight["prefill_level"], tight["fits"], tight["saved_ms"]) == (None, False, 1000.0)
    assert (enough["prefill_level"], enough["fits"]) == (1, True)


def test_without_products_of_few_bits_there_is_nothing_to_choose(compiled: Callable[[str], Bundle]) -> None:
    assert measure_phases(compiled("fp32"), threads=1, prompt=8) == {}


def test_it_is_measured_on_the_decoder_itself(compiled: Callable[[str], Bundle]) -> None:
    measured = phases(compiled("int4"))["prefill_ms"]
    assert set(measured) == {"4", "1"}
    assert all(value > 0 for value in measured.values())


def test_the_lineage_says_what_was_chosen() -> None:
    section = {"prefill_level": 1, "prefill_ms": {"4": 20.0, "1": 10.0}, "extra_mib": 74.14}
    plan = {"phases": section}
    assert phases_told(plan) == (
        "; prompts are read at accuracy level 1 from a second layout of the decoder's weights, 74 MiB more in memory"
    )
    assert phases_figures(plan) == {
        "prefill_ms_at_level_4": 20.0,
        "prefill_ms_at_level_1": 10.0,
        "second_layout_mib": 74.14,
    }
    one = {"phases": section | {"prefill_level": None}}
    assert phases_told(one) == phases_told({}) == ""
    assert phases_figures(one)["second_layout_mib"] == 0.0
    assert phases_figures({}) == {}
