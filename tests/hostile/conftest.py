"""One real server process with the embedded model and a word filter, for all hostile requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foveola.guard.words import write_words
from tests.guard.lists import compiled
from tests.serve.process import Process


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    words = tmp_path_factory.mktemp("guard") / "a.words"
    write_words(compiled(["zzqx"]), words)
    env = {"FOVEOLA_GUARD_WORDS": str(words), "FOVEOLA_SERVE_READ_TIMEOUT_S": "20"}
    with Process("-m", "foveola", "serve", "--port", "0", env=env) as process:
        yield process


@pytest.fixture(scope="session")
def client(server: Process) -> Iterator[httpx.Client]:
    with server.ready() as client:
        yield client


@pytest.fixture(autouse=True)
def _alive_and_quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test that asks the server it lives, is ready, and has logged nothing that it did not expect."""
    if "client" not in request.fixturenames:
        yield
        return
    server: Process = request.getfixturevalue("server")
    client: httpx.Client = request.getfixturevalue("client")
    seen = len(server.log)
    yield
    assert server.popen.poll() is None
    assert client.get("/health/ready").status_code == 200
    assert not [line for line in server.log[seen:] if line.get("event") == "unhandled"]


@pytest.fixture(scope="session")
def server_pid(server: Process) -> int:
    return server.popen.pid


def peak_mib(pid: int) -> float:
    """The most memory that the process has held so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
