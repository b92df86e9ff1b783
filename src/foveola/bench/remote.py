"""A contender in a child process, so that its memory, its threads and its imports are its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from foveola.bench.contender import CannotTakePart, Setup
from foveola.bench.environment import child_environment
from foveola.bench.sample import Block, Item
from foveola.exchange import Refusal, Unavailable

_CLOSE_S = 20.0


class Remote:
    """Starts ``foveola.bench.worker`` and speaks JSON lines with it."""

    def __init__(self, name: str, kind: str, setup: Setup) -> None:
        """Start the process and open the contender; blocks until it can answer.

        Raises ``CannotTakePart`` with what is missing, or what opening a bundle raises.
        """
        self.name = name
        self._noise = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see close
        self._process = subprocess.Popen(
            [sys.executable, "-m", "foveola.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env=child_environment(setup.threads),
            text=True,
            encoding="utf-8",
        )
        try:
            told = {"kind": kind, "source": str(setup.source), "threads": setup.threads, "max_tokens": setup.max_tokens}
            self._ask({"open": told})
        except BaseException:
            self.close()
            raise

    def run(self, items: Sequence[Item], concurrency: int) -> Block:
        """See ``Contender.run``."""
        told = {"items": [item.to_json() for item in items], "concurrency": concurrency}
        return Block.from_json(self._ask({"run": told})["block"])

    def peak_memory(self) -> int:
        """See ``Contender.peak_memory``."""
        return int(self._ask({"peak_memory": True})["peak_memory"])

    def close(self) -> None:
        """End the process, gently at first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what could not be written to a dead process is written again here
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._noise.close()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: the reply that does not come tells why
            print(json.dumps(command), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"{self.name} ended in the middle of the benchmark: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "refused" in reply:
            refused = reply["refused"]
            kind = CannotTakePart if refused["code"] == CannotTakePart.code else Refusal
            raise kind(refused["message"])
        return reply

    def _last_words(self) -> str:
        self._process.wait(_CLOSE_S)
        self._noise.seek(0)
        lines = [line.strip() for line in self._noise if line.strip()]
        return lines[-1][:300] if lines else f"exit code {self._process.returncode}, and it said nothing"
