"""Every metric of a served model, defined once: the server registers them, dashboards and alerts are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LATENCY_BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STAGE_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, *LATENCY_BUCKETS_S)
TOKEN_BUCKETS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)
COMMON = ("model_version", "region")


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric: ``name`` as Prometheus' client takes it (a counter's series ends in ``_total``), labels beyond
    ``COMMON``, and a histogram's upper bounds. ``known`` are values of the one label that are there from the start:
    a series that begins at 1 hides its first increase from every rate."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """The name in queries: of a counter with ``_total``, of a histogram its buckets."""
        return self.name + {"counter": "_total", "gauge": "", "histogram": "_bucket"}[self.kind]


QPS = Definition("ocr_qps", "counter", "Requests that came to an end, however.")
LATENCY = Definition(
    "ocr_latency_seconds", "histogram", "From request to last piece, of answers.", (), LATENCY_BUCKETS_S
)
ACCURACY = Definition(
    "ocr_accuracy_rate",
    "gauge",
    "Share of right answers among the latest labelled ones; NaN before the first.",
)
ACCURACY_SAMPLES = Definition(
    "foveola_accuracy_samples", "gauge", "How many labelled answers the accuracy is the share of."
)
STAGE = Definition(
    "foveola_stage_seconds",
    "histogram",
    "Time of answers by stage; first_token and total are not parts but sums.",
    ("stage",),
    STAGE_BUCKETS_S,
    ("queue", "decode_image", "preprocess", "vision", "prefill", "decode", "first_token", "total"),
)
TOKENS = Definition(
    "foveola_tokens", "counter", "Tokens of answers; visual ones also count as prompt.", ("kind",), (),
    ("prompt", "visual", "completion", "cached"),
)  # fmt: skip
PICTURE_TOKENS = Definition(
    "foveola_picture_tokens",
    "histogram",
    "Visual tokens of a picture: what it would make alone, what it made, what the decoder read.",
    ("when",),
    TOKEN_BUCKETS,
    ("alone", "budgeted", "read"),
)
REFUSED = Definition(
    "foveola_refused", "counter", "Requests that were refused or failed.", ("code",), (),
    ("bad_image", "busy", "internal_error", "invalid_field", "late", "over_budget", "too_large", "unavailable"),
)  # fmt: skip
CANCELLED = Definition("foveola_cancelled", "counter", "Requests whose reader left.")
QUEUED = Definition("foveola_queue_depth", "gauge", "Requests that wait or are being prepared.")
QUEUED_MOST = Definition("foveola_queue_depth_most", "gauge", "The greatest queue depth seen since the start.")
ACTIVE = Definition("foveola_active", "gauge", "Requests that are being computed.")
ROUTED = Definition("foveola_routed", "counter", "Answers by the engine that gave them, and why.", ("engine", "reason"))
VERDICTS = Definition("foveola_guard_verdicts", "counter", "What the guards decided.", ("guard", "outcome"))
DRIFT = Definition(
    "foveola_drift_share", "gauge", "A drift chart's value as a share of its bound; above 1 is an alarm.",
    ("camera", "chart"),
)  # fmt: skip
DRIFT_ALARMS = Definition("foveola_drift_alarms", "counter", "Alarms of drift charts.", ("camera", "chart"))
DRIFT_RULE = Definition(
    "foveola_drift_rule_mean", "gauge", "The described rule's sliding mean of cosines; an indicator only.", ("camera",)
)

ALL = (
    QPS, LATENCY, ACCURACY, ACCURACY_SAMPLES, STAGE, TOKENS, PICTURE_TOKENS, REFUSED, CANCELLED, QUEUED, QUEUED_MOST,
    ACTIVE, ROUTED, VERDICTS, DRIFT, DRIFT_ALARMS, DRIFT_RULE,
)  # fmt: skip
