"""A server in a process of its own, its log read line by line."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

import httpx

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # only reached when something is broken


class Process:
    """Started on construction; ``client`` reaches it. Ends it, whatever state it is in, on leaving the context."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
        self.popen = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[dict[str, Any]] = []
        self.noise: list[str] = []  # what is not JSON, of which there must be none
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.wait()
        self._reader.join()
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.popen.stdout.close()
        self.popen.stderr.close()

    def until(self, event: str, **fields: Any) -> dict[str, Any]:
        """Read the log up to an event with these fields and return it."""
        while True:
            line = self._lines.get(timeout=PATIENCE_S)
            assert line is not None, f"the log ended without {event}: {self.log} {self.noise}"
            one = self._keep(line)
            if one.get("event") == event and all(one.get(name) == value for name, value in fields.items()):
                return one

    def _keep(self, line: str) -> dict[str, Any]:
        try:
            one: dict[str, Any] = json.loads(line)
        except ValueError:
            self.noise.append(line)
            return {}
        self.log.append(one)
        return one

    def listening(self) -> httpx.Client:
        """A client, as soon as the port is open."""
        port = self.until("listening")["port"]
        return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    def ready(self) -> httpx.Client:
        """A client, as soon as the model is loaded."""
        client = self.listening()
        self.until("ready")
        return client

    def terminate(self) -> None:
        """Ask it to stop."""
        self.popen.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for its end, read the rest of the log, return its exit code."""
        code = self.popen.wait(PATIENCE_S)
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self._keep(line)
        return code
