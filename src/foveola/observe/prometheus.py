"""Asking a Prometheus over its HTTP API, version 1."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foveola.exchange import Unavailable


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels, and (Unix seconds, value) pairs."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float | None:
        """The last value, None for one that is no finite number."""
        value = self.points[-1][1]
        return value if math.isfinite(value) else None


class PrometheusApi:
    """A Prometheus at ``address``, such as http://prometheus:9090. Every method blocks, ``timeout_s`` at most.

    They raise ``Unavailable`` where nobody answers, ``ValueError`` with Prometheus' own words for an expression that it
    cannot parse.
    """

    def __init__(self, address: str, timeout_s: float = 5.0) -> None:
        self._api, self._timeout_s = f"{address.rstrip('/')}/api/v1/", timeout_s

    def query(self, expression: str) -> list[Series]:
        """What ``expression`` is now."""
        found = self._get("query", query=expression)["result"]
        return [Series(one["metric"], (_point(one["value"]),)) for one in found]

    def over(self, expression: str, start: float, end: float, step_s: float) -> list[Series]:
        """What ``expression`` was between two times in Unix seconds."""
        found = self._get("query_range", query=expression, start=start, end=end, step=step_s)["result"]
        return [Series(one["metric"], tuple(map(_point, one["values"]))) for one in found]

    def values_of(self, label: str) -> list[str]:
        """All values that a label has, as a dashboard's variable asks for them."""
        return [str(value) for value in self._get(f"label/{label}/values")]

    def alerts(self) -> dict[str, str]:
        """The state, ``pending`` or ``firing``, of every alert that is not quiet."""
        return {one["labels"]["alertname"]: one["state"] for one in self._get("alerts")["alerts"]}

    def _get(self, path: str, **given: object) -> Any:
        address = f"{self._api}{path}?{urllib.parse.urlencode(given)}"
        away = Unavailable("The Prometheus of the settings does not answer; see that it runs, and its address.")
        try:
            with urllib.request.urlopen(address, timeout=self._timeout_s) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            with error:
                told = error.read()
            if error.code != 400:
                raise away from None
            raise ValueError(json.loads(told)["error"]) from None
        except (OSError, ValueError, KeyError):
            raise away from None


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
