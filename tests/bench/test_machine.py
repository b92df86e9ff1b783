from __future__ import annotations

import os
from pathlib import Path

import pytest

from foveola.bench import machine
from foveola.bench.machine import command_line, describe_machine, describe_versions, platform_line


def test_the_machine_is_described_without_its_name() -> None:
    found = describe_machine()
    assert set(found) == {"cpu", "vector", "cores", "memory_gib", "system", "busy"}
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0
    assert 0 <= found["busy"] <= 1
    assert os.uname().nodename not in str(found)
    assert found["cpu"] in platform_line(found)


def test_versions_name_what_is_installed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_PACKAGES", ("numpy", "no-such-package-anywhere"))
    found = describe_versions()
    assert set(found) == {"python", "foveola", "numpy"}


def test_the_command_can_be_repeated_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "bench").mkdir(parents=True)
    script = str(root / "bench" / "e1_speed.py")
    argv = [script, "--bundle", str(tmp_path / "private" / "bundle"), f"--data={root / 'data'}", "--questions", "400"]
    told = command_line(argv, root)
    assert told == "python bench/e1_speed.py --bundle '…/bundle' --data=data --questions 400"
    assert str(tmp_path) not in told
    rival = f"llama.cpp={tmp_path / 'envs' / 'python'}={tmp_path / 'a.gguf'}=Q4_0, head Q8_0"
    assert command_line([script, "--rival", rival], root).endswith("'llama.cpp=…/python=…/a.gguf=Q4_0, head Q8_0'")
    assert command_line(["/usr/bin/foveola", "bench", "--rivals", "none"], root) == "foveola bench --rivals none"


def test_how_busy_the_cores_are(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(100, 200), (130, 300)])
    monkeypatch.setattr(machine, "_cpu_times", lambda: next(readings))
    assert machine.busy_share(0) == pytest.approx(0.7)


def test_memory_of_this_process_and_of_a_number_that_is_its_own() -> None:
    assert 0 < machine.held_memory() <= machine.peak_memory()
    assert machine.peak_memory(os.getpid()) >= 2**20


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not pin processes to cores")
def test_pinning_ends_with_the_context() -> None:
    before = os.sched_getaffinity(0)
    with machine.pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
