"""Metrics of HTTP itself: every request, also those that no model ever saw (bad JSON, 401, 413, 415, 429)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Tally:
    """Counts requests by route, method and status, and refusals by route and code. One per application."""

    def __init__(self, region: str = "") -> None:
        self._registry = CollectorRegistry()
        self._region = region
        self._requests = Counter(
            "foveola_http_requests",
            "Requests over HTTP that came to an end.",
            ("route", "method", "status", "region"),
            registry=self._registry,
        )
        self._refused = Counter(
            "foveola_http_refused",
            "Requests that were refused over HTTP, by the error's code, whoever refused them.",
            ("route", "code", "region"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "foveola_http_seconds",
            "From the headers to the end of the reply.",
            ("route", "region"),
            buckets=SECONDS,
            registry=self._registry,
        )

    def count(self, route: str | None, method: str, status: int | None, code: str | None, seconds: float) -> None:
        """One request. ``route`` is the template of its path: a path itself may hold anything, and without bound."""
        labels = {"route": route or "none", "region": self._region}
        method = method if method in _METHODS else "other"
        self._requests.labels(**labels, method=method, status=str(status or 0)).inc()
        self._seconds.labels(**labels).observe(seconds)
        if code is not None:
            self._refused.labels(**labels, code=code).inc()

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)
