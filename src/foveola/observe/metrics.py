"""Prometheus metrics of one served model, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foveola.exchange import Stages, Usage
from foveola.observe import definitions as names
from foveola.observe.accuracy import Accuracy
from foveola.observe.definitions import Definition
from foveola.observe.records import Record

VERSION_CHARS = 12


class Metrics:
    """Counts records: ``observed(answer, metrics)``. Every series carries ``model_version`` and ``region``."""

    def __init__(self, *, model_hash: str, region: str = "") -> None:
        """``model_version`` is the beginning of ``model_hash``."""
        self.registry = CollectorRegistry()
        self._depth: Callable[[], float] = lambda: 0.0
        self._most = 0.0
        self._labels = {"model_version": model_hash[:VERSION_CHARS], "region": region}
        self._series: dict[tuple[str, ...], Any] = {}
        self._counters = {d: Counter(d.name, d.help, self._of(d), registry=self.registry) for d in _of_kind("counter")}
        self._gauges = {d: Gauge(d.name, d.help, self._of(d), registry=self.registry) for d in _of_kind("gauge")}
        self._histograms = {
            d: Histogram(d.name, d.help, self._of(d), buckets=d.buckets, registry=self.registry)
            for d in _of_kind("histogram")
        }
        for definition in names.ALL:
            if not definition.labels:  # a series that exists at 0 is one that an alert can see
                self._at(definition)
            for value in definition.known:
                self._at(definition, **{definition.labels[0]: value})
        self.set(names.ACCURACY, float("nan"))

    @staticmethod
    def _of(definition: Definition) -> tuple[str, ...]:
        return (*names.COMMON, *definition.labels)

    def _at(self, definition: Definition, **labels: str) -> Any:
        """The series; looking one up in the library takes longer than counting, so that each is looked up once."""
        key = (definition.name, *(labels[name] for name in definition.labels))
        series = self._series.get(key)
        if series is None:
            every: dict[str, Any] = {"counter": self._counters, "gauge": self._gauges, "histogram": self._histograms}
            series = self._series[key] = every[definition.kind][definition].labels(**self._labels, **labels)
        return series

    def watch_queue(self, queued: Callable[[], float], active: Callable[[], float]) -> None:
        """Ask these two whenever the metrics are read, and the first at every request for its greatest value."""

        def depth() -> float:
            now = queued()
            self._most = max(self._most, now)
            return now

        self._depth = depth
        self._gauges[names.QUEUED].labels(**self._labels).set_function(depth)
        self._gauges[names.QUEUED_MOST].labels(**self._labels).set_function(lambda: self._most)
        self._gauges[names.ACTIVE].labels(**self._labels).set_function(active)

    def watch_accuracy(self, accuracy: Accuracy) -> None:
        """Ask for the accuracy whenever the metrics are read."""
        self._gauges[names.ACCURACY].labels(**self._labels).set_function(lambda: accuracy.rate)
        self._gauges[names.ACCURACY_SAMPLES].labels(**self._labels).set_function(lambda: accuracy.samples)

    def count(self, definition: Definition, amount: float = 1, **labels: str) -> None:
        """Add to a counter. The values of its labels must be of a bounded set."""
        self._at(definition, **labels).inc(amount)

    def set(self, definition: Definition, value: float, **labels: str) -> None:
        """Set a gauge. The values of its labels must be of a bounded set."""
        self._at(definition, **labels).set(value)

    def _observe(self, definition: Definition, value: float, **labels: str) -> None:
        self._at(definition, **labels).observe(value)

    def __call__(self, record: Record) -> None:
        """Count one request."""
        self._depth()
        self.count(names.QPS)
        if record.outcome == "cancelled":
            self.count(names.CANCELLED)
        if record.code is not None:
            self.count(names.REFUSED, code=record.code)
        if record.outcome != "answered":
            return
        self._observe(names.LATENCY, record.seconds)
        if record.usage is not None:
            self._count_usage(record.usage)

    def _count_usage(self, usage: Usage) -> None:
        for stage in fields(Stages):
            self._observe(names.STAGE, getattr(usage.stages, stage.name), stage=stage.name.removesuffix("_s"))
        for kind in ("prompt", "visual", "completion", "cached"):
            self.count(names.TOKENS, getattr(usage, f"{kind}_tokens"), kind=kind)
        for image in usage.images:
            self._observe(names.PICTURE_TOKENS, image.unbounded or image.tokens, when="alone")
            self._observe(names.PICTURE_TOKENS, image.tokens, when="budgeted")
            self._observe(names.PICTURE_TOKENS, image.tokens if image.kept is None else image.kept, when="read")
        if usage.route is not None:
            self.count(names.ROUTED, engine=usage.route.engine, reason=usage.route.reason)

    def render(self) -> bytes:
        """The text that ``/metrics`` replies with (Prometheus' text format 0.0.4, UTF-8)."""
        return generate_latest(self.registry)


def _of_kind(kind: str) -> list[Definition]:
    return [definition for definition in names.ALL if definition.kind == kind]
