"""Prometheus metrics of one served model, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foveola.exchange import Stages
from foveola.observe.records import Record

LATENCY_BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STAGE_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, *LATENCY_BUCKETS_S)
VERSION_CHARS = 12
_LABELS = ("model_version", "region")


class Metrics:
    """Counts records: ``observed(answer, metrics)``. Every series carries ``model_version`` and ``region``."""

    def __init__(self, *, model_hash: str, region: str = "") -> None:
        """``model_version`` is the beginning of ``model_hash``."""
        self.registry = registry = CollectorRegistry()
        self._labels = {"model_version": model_hash[:VERSION_CHARS], "region": region}
        self._requests = Counter("ocr_qps", "Requests that came to an end, however.", _LABELS, registry=registry)
        self._latency = Histogram(
            "ocr_latency_seconds",
            "From request to last piece, of answers.",
            _LABELS,
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._stage = Histogram(
            "foveola_stage_seconds",
            "Time of answers by stage; first_token and total are not parts but sums.",
            (*_LABELS, "stage"),
            buckets=STAGE_BUCKETS_S,
            registry=registry,
        )
        self._tokens = Counter(
            "foveola_tokens",
            "Tokens of answers; visual ones also count as prompt.",
            (*_LABELS, "kind"),
            registry=registry,
        )
        self._refused = Counter(
            "foveola_refused", "Requests that were refused or failed.", (*_LABELS, "code"), registry=registry
        )
        self._cancelled = Counter("foveola_cancelled", "Requests whose reader left.", _LABELS, registry=registry)
        self._queued = Gauge(
            "foveola_queue_depth", "Requests that wait or are being prepared.", _LABELS, registry=registry
        )
        self._active = Gauge("foveola_active", "Requests that are being computed.", _LABELS, registry=registry)
        for metric in (self._requests, self._latency, self._cancelled, self._queued, self._active):
            metric.labels(**self._labels)  # a series that exists at 0 is one that an alert can see

    def watch_queue(self, queued: Callable[[], float], active: Callable[[], float]) -> None:
        """Ask these two whenever the metrics are read."""
        self._queued.labels(**self._labels).set_function(queued)
        self._active.labels(**self._labels).set_function(active)

    def __call__(self, record: Record) -> None:
        """Count one request."""
        self._requests.labels(**self._labels).inc()
        if record.outcome == "cancelled":
            self._cancelled.labels(**self._labels).inc()
        if record.code is not None:
            self._refused.labels(**self._labels, code=record.code).inc()
        if record.outcome != "answered":
            return
        self._latency.labels(**self._labels).observe(record.seconds)
        if record.usage is None:
            return
        for stage in fields(Stages):
            seconds = getattr(record.usage.stages, stage.name)
            self._stage.labels(**self._labels, stage=stage.name.removesuffix("_s")).observe(seconds)
        for kind in ("prompt", "visual", "completion"):
            count = getattr(record.usage, f"{kind}_tokens")
            self._tokens.labels(**self._labels, kind=kind).inc(count)

    def render(self) -> bytes:
        """The text that ``/metrics`` replies with (Prometheus' text format 0.0.4, UTF-8)."""
        return generate_latest(self.registry)
