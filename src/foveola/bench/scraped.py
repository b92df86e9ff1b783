"""A real Prometheus beside a measurement: it scrapes servers, and is asked what a dashboard would ask it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from foveola.bench.contender import CannotTakePart
from foveola.exchange import Unavailable
from foveola.observe.prometheus import PrometheusApi, Series

HOST = "127.0.0.1"
PATIENCE_S = 120.0
NAME = "prometheus"


class Prometheus(PrometheusApi):
    """A Prometheus of its own that scrapes ports of this machine every ``every_s`` seconds; Debian's will do."""

    def __init__(self, folder: Path, ports: Sequence[int], *, rules: Path | None = None, every_s: int = 1) -> None:
        """Start it, with its data in ``folder``. Raises ``CannotTakePart`` where it is not installed."""
        binary = shutil.which(NAME)
        if binary is None:
            raise CannotTakePart("prometheus is not installed")
        targets = [{"targets": [f"{HOST}:{port}" for port in ports]}]
        every = {"scrape_interval": f"{every_s}s", "evaluation_interval": f"{every_s}s"}
        config: dict[str, Any] = {"global": every, "scrape_configs": [{"job_name": NAME, "static_configs": targets}]}
        if rules is not None:
            config["rule_files"] = [str(rules)]
        path = folder / "prometheus.yml"
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        self.address = f"http://{HOST}:{port}"
        super().__init__(self.address, PATIENCE_S)
        words = [binary, f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error"]
        self._process = subprocess.Popen([*words, f"--web.listen-address={HOST}:{port}"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait_for(self, expression: str) -> list[Series]:
        """Ask until there is an answer. Raises ``TimeoutError`` that says what never came."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Unavailable):  # it is starting
                if found := self.query(expression):
                    return found
            time.sleep(0.2)
        raise TimeoutError(f"Prometheus never had {expression}")


def filled_in(expression: str, *, interval_s: int = 15) -> str:
    """A panel's query as Grafana sends it with every variable on *All*."""
    for name, value in {"$__rate_interval": f"{interval_s}s", "$model_version": ".*", "$region": ".*"}.items():
        expression = expression.replace(name, value)
    return expression
