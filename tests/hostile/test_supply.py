"""FIELD: the supply chain. Nothing is unpickled, nothing leaves the machine, nothing in a header is believed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foveola.artifact.checkpoint import Checkpoint
from foveola.exchange import Damaged
from tests.serve.process import ROOT

pytestmark = pytest.mark.process
SOURCES = sorted((ROOT / "src" / "foveola").rglob("*.py"))


def alone(*before: str) -> dict[str, object]:
    command = [*before, sys.executable, "-m", "tests.hostile.alone"]
    env = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_it_answers_where_no_network_is_and_asks_for_none() -> None:
    """In a network namespace without a route, without even a loopback device that is up."""
    tool = shutil.which("unshare")
    if tool is None or subprocess.run([tool, "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespace (needs unshare and the right to use it)")
    report = alone(tool, "-n")
    assert report == {"finish": report["finish"], "pickle": [], "connect": [], "lookup": [], "exec": []}
    assert report["finish"] in ("stop", "length")


@pytest.mark.parametrize(
    "pattern",
    [r"^\s*(import|from) (pickle|marshal|shelve|joblib|dill|cloudpickle)\b", r"torch\.load\((?!.*weights_only=True)"],
)
def test_no_source_reads_what_runs_code(pattern: str) -> None:
    found = re.compile(pattern, re.MULTILINE)
    assert [path.name for path in SOURCES if found.search(path.read_text(encoding="utf-8"))] == []


def test_no_source_runs_a_checkpoints_code() -> None:
    assert [path.name for path in SOURCES if "trust_remote_code=True" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "weights.ckpt"])
def test_a_checkpoint_of_pickles_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["A"], "model_type": "a"}')
    (tmp_path / name).write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(Damaged):
        Checkpoint.open(tmp_path)
