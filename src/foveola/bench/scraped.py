"""A real Prometheus beside a measurement: it scrapes servers, and is asked what a dashboard would ask it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from foveola.bench.contender import CannotTakePart

HOST = "127.0.0.1"
PATIENCE_S = 120.0
NAME = "prometheus"


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels, and (Unix seconds, value) pairs."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus:
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
        self._api = f"http://{HOST}:{port}"
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
            with contextlib.suppress(urllib.error.URLError, OSError):
                if found := self.query(expression):
                    return found
            time.sleep(0.2)
        raise TimeoutError(f"Prometheus never had {expression}")

    def query(self, expression: str) -> list[Series]:
        """What ``expression`` is now. Raises ``ValueError`` with Prometheus' words for one that it cannot parse."""
        found = self._get("query", query=expression)["result"]
        return [Series(one["metric"], (_point(one["value"]),)) for one in found]

    def over(self, expression: str, start: float, end: float, step_s: float) -> list[Series]:
        """What ``expression`` was between two times in Unix seconds. Raises as ``query``."""
        found = self._get("query_range", query=expression, start=start, end=end, step=step_s)["result"]
        return [Series(one["metric"], tuple(map(_point, one["values"]))) for one in found]

    def values_of(self, label: str) -> list[str]:
        """All values that a label has, as a dashboard's variable asks for them."""
        return [str(value) for value in self._get(f"label/{label}/values")]

    def alerts(self) -> dict[str, str]:
        """The state, ``pending`` or ``firing``, of every alert that is not quiet."""
        return {one["labels"]["alertname"]: one["state"] for one in self._get("alerts")["alerts"]}

    def _get(self, path: str, **given: object) -> Any:
        address = f"{self._api}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            with error:
                told = error.read()
            if error.code == 503:  # it is starting
                raise OSError("not ready") from None
            raise ValueError(json.loads(told)["error"]) from None


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def filled_in(expression: str, *, interval_s: int = 15) -> str:
    """A panel's query as Grafana sends it with every variable on *All*."""
    for name, value in {"$__rate_interval": f"{interval_s}s", "$model_version": ".*", "$region": ".*"}.items():
        expression = expression.replace(name, value)
    return expression
