"""Flower's own programs, started by ours: a real SuperLink and real SuperNodes on loopback, over TLS."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

from foveola.artifact.prompt import Prompt
from foveola.cli import main
from foveola.exchange import Unavailable
from foveola.learn.federate import launch
from foveola.learn.federate.flower import patient
from foveola.learn.federate.launch import Certificates, link_command, node_command, program, run_config
from foveola.learn.federate.problem import synthetic
from foveola.learn.federate.site import MEMORY_FILE
from tests.learn.federate.authority import write_certificates
from tests.learn.federate.relay import Relay

PATIENCE_S = 600


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs of Flower's names that do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("flwr", "flower-superlink", "flower-supernode"):
        (folder / name).write_text("#!/bin/sh\nexit 3\n")
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv(launch.PROGRAMS, str(folder))
    return folder


def test_settings_are_toml() -> None:
    assert run_config({"folder": 'a "b"', "rounds": 3, "keep": 0.05}) == r'folder="a \"b\"" rounds=3 keep=0.05'


def test_nothing_is_started_without_tls(programs: Path, tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    commands = [
        link_command("127.0.0.1", 1, Certificates(*files)),
        node_command("host:1", Certificates(files[0]), {"keep": 0.1}, 2),
    ]
    for command in commands:
        assert command[0].startswith(str(programs))
        assert "--insecure" not in command
    assert commands[0][-7:-1] == [
        "--ssl-certfile", str(files[1]), "--ssl-keyfile", str(files[2]), "--ssl-ca-certfile", str(files[0])
    ]  # fmt: skip
    assert commands[1][1:5] == ["--superlink", "host:1", "--root-certificates", str(files[0])]
    with pytest.raises(
        Unavailable, match="missing.pem is no file; name a PEM file. There is no federation without TLS"
    ):
        Certificates(tmp_path / "missing.pem").check()


def test_flower_gets_more_patience_where_its_interpreter_is_beside_it(programs: Path, tmp_path: Path) -> None:
    (programs / "python").symlink_to(sys.executable)
    files = write_certificates(tmp_path)
    told = link_command("127.0.0.1", 1, Certificates(*files)), node_command("host:1", Certificates(files[0]), {}, 2)
    for command, name in zip(told, patient.PROGRAMS, strict=True):
        assert command[:4] == [str(programs / "python"), "-m", patient.__name__, name]


def test_what_a_task_has_to_begin_is_replaced_or_another_flower_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    state, other = types.ModuleType("a_state"), types.ModuleType("another_state")
    setattr(state, patient.CONSTANT, 30)
    monkeypatch.setitem(sys.modules, "a_state", state)
    monkeypatch.setitem(sys.modules, "another_state", other)
    patient.make_patient(["a_state"])
    assert getattr(state, patient.CONSTANT) == patient.START_S
    with pytest.raises(AttributeError, match=patient.CONSTANT):
        patient.make_patient(["another_state"])


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(launch.PROGRAMS, str(tmp_path))
    with pytest.raises(
        Unavailable, match=r"Flower's flwr is not here. Install it apart .*foveola\[federation\]"
    ) as caught:
        program("flwr")
    assert str(tmp_path) not in caught.value.message


def test_telemetry_and_fetching_are_off(programs: Path, tmp_path: Path) -> None:
    variables = launch.environment(tmp_path)
    assert variables["FLWR_TELEMETRY_ENABLED"] == "0"
    assert variables["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert variables["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert (Path(variables["PYTHONPATH"].split(os.pathsep)[0]) / "foveola" / "cli.py").is_file()


def test_a_superlink_that_does_not_come_up_is_told(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ca, certificate, key = map(str, write_certificates(tmp_path))
    given = ["federate", "server", "--folder", str(tmp_path / "server"), "--port", "9", "--ca", ca]
    assert main([*given, "--certificate", certificate, "--key", key]) == 2
    assert "Flower's SuperLink did not begin to listen on 127.0.0.1:9" in capsys.readouterr().err


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def until_listening(port: int) -> None:
    """A SuperNode whose connection is accepted and closed again, as the relay would do, gives up."""
    for _ in range(2 * PATIENCE_S):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise AssertionError("the SuperLink never listened")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(
    shutil.which("flower-superlink", path=os.environ.get(launch.PROGRAMS)) is None,
    reason=f"Flower's programs are not here (set {launch.PROGRAMS} to the bin folder of its environment)",
)
def test_two_sites_train_a_prompt_over_tls_and_the_wire_shows_nothing_of_them(tmp_path: Path) -> None:
    ca, certificate, key = map(str, write_certificates(tmp_path))
    features, labels = synthetic(80, 24, np.random.default_rng(0))
    port = free_port()
    foveola = [sys.executable, "-m", "foveola", "federate"]
    tls = ["--ca", ca, "--certificate", certificate, "--key", key]
    settings = ["--width", "24", "--rounds", "3", "--min-nodes", "2", "--patience-s", "300", "--round-s", "300"]
    nodes = []
    with Relay(port) as relay:
        server = subprocess.Popen(
            [*foveola, "server", "--folder", str(tmp_path / "server"), "--port", str(port), *tls, *settings]
        )
        try:
            until_listening(port)
            for number in (0, 1):
                own = tmp_path / f"own{number}.npz"
                np.savez(own, features=features[number::2], labels=labels[number::2])
                at = ["--folder", str(tmp_path / f"site{number}"), "--port", str(free_port())]
                where = ["--server", f"127.0.0.1:{relay.port}", "--features", str(own)]
                nodes.append(subprocess.Popen([*foveola, "node", *where, *at, "--ca", ca]))
            assert server.wait(PATIENCE_S) == 0
        finally:
            for process in (*nodes, server):
                launch.stop(process)
        seen = relay.seen
    figures = json.loads((tmp_path / "server" / "figures.json").read_text())
    assert figures["rounds"] == 3
    assert figures["rejected"] == {}
    prompt = Prompt.open(tmp_path / "server" / "prompt")
    assert prompt.values.any()
    assert all((tmp_path / f"site{number}" / MEMORY_FILE).is_file() for number in (0, 1))
    assert len(seen) > figures["up_bytes"] + figures["down_bytes"]
    assert b"FVPU" not in seen  # not even our own header is readable
    assert not any(row[at : at + 2].tobytes() in seen for row in features for at in range(0, 24, 4))
