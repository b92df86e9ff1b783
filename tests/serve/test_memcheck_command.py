"""``foveola memcheck`` from its arguments to its exit code, on the embedded model."""

from __future__ import annotations

import ctypes
import json
import shutil
from typing import Any

import numpy as np
import pytest

from foveola.cli import main
from foveola.engine.runner import OrtRunner
from foveola.serve.embedded import embedded_bundle
from foveola.serve.memcheck_command import FOUND


def checked(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, dict[str, Any]]:
    assert main(["memcheck", str(embedded_bundle()), "--json"]) == code
    return {one["tool"]: one for one in json.loads(capsys.readouterr().out)}


def test_a_sound_bundle_passes_and_what_was_not_checked_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    results = checked(capsys, 0)
    assert results["red zones"]["runs"] > 0 and results["red zones"]["faults"] == []
    assert results["red zones"]["not_checked"] is None
    assert results["valgrind"]["not_checked"] == "not asked for; add --valgrind"
    if shutil.which("compute-sanitizer") is None:
        assert "this machine lacks" in results["compute-sanitizer"]["not_checked"]
        assert "compute-sanitizer (CUDA toolkit)" in results["compute-sanitizer"]["not_checked"]


@pytest.mark.parametrize(
    ("call", "kind", "where"),
    [(0, "4 bytes behind the buffer", "in the first run"), (3, "memory was overrun", "see the log")],
)
def test_an_overrun_fails_the_gate(
    call: int, kind: str, where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, calls = OrtRunner.decode, iter(range(1000))

    def overrunning(runner: Any, *given: Any) -> Any:
        if next(calls) != call:
            return decode(runner, *given)
        buffer = next(iter(runner._kv.values()))
        np.ctypeslib.as_array((ctypes.c_uint8 * 4).from_address(buffer.ctypes.data + buffer.nbytes))[:] = 0
        return decode(runner, *given)

    monkeypatch.setattr(OrtRunner, "decode", overrunning)
    [fault] = checked(capsys, FOUND)["red zones"]["faults"]
    assert kind in fault["kind"] and where in fault["where"]


def test_without_json_every_tool_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memcheck", str(embedded_bundle())]) == 0
    red_zones, sanitizer, valgrind = capsys.readouterr().out.splitlines()
    assert red_zones.startswith("red zones: 0 findings in ")
    assert sanitizer.startswith("compute-sanitizer: ")
    assert valgrind == "valgrind: not checked: not asked for; add --valgrind"


def test_a_bundle_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memcheck", "nowhere"]) != 0
    assert "nowhere" in capsys.readouterr().err
