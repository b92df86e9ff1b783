"""Which versions answer how much of the traffic, and how well: from the Prometheus that scrapes all of them."""

from __future__ import annotations

from dataclasses import dataclass

from foveola.observe import definitions as names
from foveola.observe.prometheus import PrometheusApi

WINDOW = "5m"
VERSION = "model_version"


def _rate(series: str, by: str = VERSION) -> str:
    return f"sum by ({by}) (rate({series}[{WINDOW}]))"


QUERIES = {
    "requests_per_s": _rate(names.QPS.series),
    "refused_per_s": _rate(names.REFUSED.series),
    "p95_s": f"histogram_quantile(0.95, {_rate(names.LATENCY.series, f'{VERSION}, le')})",
    "samples": f"sum by ({VERSION}) ({names.ACCURACY_SAMPLES.series})",
    # the mean of servers weighs as their labelled answers do; one without any has no accuracy at all
    "accuracy": (
        f"sum by ({VERSION}) (({names.ACCURACY.series} >= 0) * {names.ACCURACY_SAMPLES.series})"
        f" / sum by ({VERSION}) ({names.ACCURACY_SAMPLES.series} > 0)"
    ),
}
"""What is asked for each version: PromQL by the field of ``Standing``."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version in the last ``WINDOW``: its ``share`` 0..1 of all requests; None where there is nothing to tell."""

    model_version: str
    share: float | None = None
    requests_per_s: float | None = None
    refused_per_s: float | None = None
    p95_s: float | None = None
    accuracy: float | None = None
    samples: float | None = None


def versions(api: PrometheusApi) -> list[Version]:
    """All versions that are scraped, the busiest first. Blocks; raises ``Unavailable``."""
    found: dict[str, dict[str, float]] = {}
    for field, query in QUERIES.items():
        for series in api.query(query):
            own = found.setdefault(series.labels.get(VERSION, ""), {})
            if series.last is not None:
                own[field] = series.last
    every = sum(own.get("requests_per_s", 0.0) for own in found.values())
    told = [
        Version(name, own.get("requests_per_s", 0.0) / every if every else None, **own) for name, own in found.items()
    ]
    return sorted(told, key=lambda version: (-(version.requests_per_s or 0.0), version.model_version))
