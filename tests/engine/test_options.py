"""Engine options: ranges are checked by name, cores are counted as the container allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foveola.engine.options import EngineOptions, usable_cores


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threads": 0}, "`threads` is 0; expected 1 to 512"),
        ({"threads": 1, "slots": 0}, "`slots` is 0; expected at least 1"),
        ({"threads": 1, "slots": 10**10}, "`slots` is 10000000000; expected at most 1024"),
        ({"threads": 1, "red_zone_bytes": 2**21}, "`red_zone_bytes` is 2097152; expected at most 1048576"),
        ({"threads": 1, "spin_us": -1}, "`spin_us` is -1; expected at least 0"),
        ({"threads": 1, "queue_limit": -1}, "`queue_limit` is -1; expected at least 0"),
        ({"threads": 1, "prepare_threads": 0}, "`prepare_threads` is 0; expected at least 1"),
        ({"threads": 1, "eyes": 0}, "`eyes` is 0; expected at least 1"),
        ({"threads": 1, "failures_until_dead": 0}, "`failures_until_dead` is 0; expected at least 1"),
        ({"threads": 1, "stall_after_s": float("nan")}, "`stall_after_s` is nan; expected a number of seconds above 0"),
    ],
)
def test_values_out_of_range_are_refused_by_name(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineOptions(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("quota", "most"), [("max 100000\n", None), ("150000 100000\n", 1), ("50000 100000\n", 1), ("nonsense", None)]
)
def test_a_quota_bounds_the_cores(tmp_path: Path, quota: str, most: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_cores(file) == (mine if most is None else most)


def test_a_quota_above_the_machine_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    file.write_text("99900000 100000")
    assert usable_cores(file) == usable_cores(tmp_path / "absent")


def test_the_machine_decides_the_threads() -> None:
    assert EngineOptions().threads == usable_cores()
