from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.compress.prefetch import Engine, Load, aligned, schedule
from foveola.exchange import Invalid


def test_the_next_layer_travels_while_this_one_runs() -> None:
    loads = [Load("a", "int4/32", 1600, 10.0), Load("b", "int8/32", 1600, 10.0), Load("c", "fp16", 1600, 10.0)]
    found = schedule(loads, Engine(room_bytes=3200, bytes_per_us=160.0, setup_us=0.0))
    assert [one.load_us for one in found.transfers] == [(0, 10), (10, 20), (20, 30)]
    assert [one.run_us for one in found.transfers] == [(10, 20), (20, 30), (30, 40)]
    assert [one.during for one in found.transfers] == [None, "a", "b"]
    assert (found.total_us, found.serial_us) == (40, 60)
    assert found.overlap == pytest.approx(2 / 3)


def test_with_room_for_one_nothing_overlaps() -> None:
    loads = [Load(name, "int4", 1600, 10.0) for name in "abc"]
    found = schedule(loads, Engine(room_bytes=1600, bytes_per_us=160.0, setup_us=0.0))
    assert found.total_us == found.serial_us
    assert found.overlap == 0


def test_fewer_bits_travel_faster_and_the_json_says_that_it_is_a_model() -> None:
    engine = Engine(room_bytes=1 << 20, bytes_per_us=100.0)
    wide = schedule([Load("a", "int8", 8000, 1.0), Load("b", "int8", 8000, 1.0)], engine)
    mixed = schedule([Load("a", "int8", 8000, 1.0), Load("b", "int4", 4000, 1.0)], engine)
    assert mixed.total_us < wide.total_us
    assert mixed.to_json()["modelled"] is True
    assert [one["storage"] for one in mixed.to_json()["transfers"]] == ["int8", "int4"]


def test_a_layer_larger_than_the_memory_is_told() -> None:
    with pytest.raises(Invalid, match="big needs 112 bytes at once; the fast memory holds 64. Split the layer"):
        schedule([Load("big", "int8", 100, 1.0)], Engine(room_bytes=64, bytes_per_us=1.0))


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.floats(0, 50)), min_size=1, max_size=12),
    st.integers(1, 3),
    st.integers(4000, 12000),
)
def test_room_order_and_alignment_always_hold(layers: list[tuple[int, float]], channels: int, room: int) -> None:
    loads = [Load(str(i), "int4", size, time) for i, (size, time) in enumerate(layers)]
    found = schedule(loads, Engine(room_bytes=aligned(room), bytes_per_us=37.0, channels=channels))
    for one in found.transfers:
        assert one.bytes % 16 == 0
        assert one.load_us[1] <= one.run_us[0]
        held = sum(
            other.bytes
            for other in found.transfers
            if other.load_us[0] <= one.load_us[0] < other.run_us[1] + 1e-9
            and int(other.layer) <= int(one.layer)
            and other.run_us[1] > one.load_us[0]
        )
        assert held <= aligned(room)
    runs = [one.run_us for one in found.transfers]
    assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(runs))
    assert 0 <= found.overlap <= 1
