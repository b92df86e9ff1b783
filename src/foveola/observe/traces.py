"""OpenTelemetry spans: one per request, one per stage below it, in the trace that the client began.

Spans are made when a request has ended, from its record, so that nothing is added to its time; they are exported by
OpenTelemetry's own batch processor in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from foveola.exchange import Evidence, Stages, Usage
from foveola.observe.context import TraceContext, own_context
from foveola.observe.records import Record

_NANO = 1_000_000_000
_SUMS = ("first_token_s", "total_s")
Value = str | int | float | Sequence[str]


class Tracing:
    """A watch for ``observed``. ``close`` sends what is left."""

    def __init__(
        self, exporter: SpanExporter, *, model: str, region: str = "", clock: Callable[[], int] = time.time_ns
    ) -> None:
        """``clock`` in nanoseconds since 1970."""
        resource = Resource.create({"service.name": "foveola", "model_version": model, "region": region})
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("foveola")
        self._clock = clock

    @classmethod
    def over_http(cls, endpoint: str, *, model: str, region: str = "") -> Tracing:
        """To a collector that speaks OTLP over HTTP; one that is away costs a log line, no answer."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return cls(OTLPSpanExporter(endpoint=endpoint, timeout=5), model=model, region=region)

    def __call__(self, record: Record) -> None:
        """Make the spans of one request."""
        end = self._clock()
        start = end - int(record.seconds * _NANO)
        self._ids.next = own_context(record.trace, record.id)
        span = self._tracer.start_span(
            "invoke", _parent(record.trace), SpanKind.SERVER, _told(record), start_time=start
        )
        if record.outcome in ("refused", "failed"):
            span.set_status(Status(StatusCode.ERROR, record.code))
        if record.usage is not None:
            below = trace.set_span_in_context(span)
            at = start
            for field in fields(Stages):
                seconds = getattr(record.usage.stages, field.name)
                if field.name in _SUMS or seconds <= 0:
                    continue
                child = self._tracer.start_span(field.name.removesuffix("_s"), below, start_time=at)
                at += int(seconds * _NANO)
                child.end(at)
        span.end(end)

    def close(self) -> None:
        """Send what has not been sent; blocks for some seconds at most."""
        self._provider.shutdown()


class _Ids(RandomIdGenerator):
    """Random identifiers, but for the span that ``next`` is for."""

    next: TraceContext | None = None

    def generate_span_id(self) -> int:
        """Of a span."""
        planned, self.next = self.next, None
        return planned.span if planned is not None else super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Of a trace, where the client began none."""
        return self.next.trace if self.next is not None else super().generate_trace_id()


def _parent(traceparent: str) -> Context | None:
    """The context of a W3C ``traceparent``; None, and so a new trace, for one that is none."""
    found = TraceContext.of(traceparent)
    if found is None:
        return None
    context = SpanContext(found.trace, found.span, is_remote=True, trace_flags=TraceFlags(found.flags))
    return trace.set_span_in_context(NonRecordingSpan(context))


def _told(record: Record) -> dict[str, Value]:
    """The attributes of a request's span."""
    told: dict[str, Value] = {"request.id": record.id, "outcome": record.outcome, "caption_length": record.chars}
    if record.code is not None:
        told["error.code"] = record.code
    if record.client:
        told["client"] = record.client
    return told if record.usage is None else told | _of_usage(record.usage)


def _of_usage(usage: Usage) -> dict[str, Value]:
    told: dict[str, Value] = {
        "tokens.prompt": usage.prompt_tokens,
        "tokens.visual": usage.visual_tokens,
        "tokens.completion": usage.completion_tokens,
        "tokens.cached": usage.cached_tokens,
    }
    if usage.images:
        told["image_resolution"] = [f"{image.original[0]}x{image.original[1]}" for image in usage.images]
    if usage.evidence:
        told["cross_attn_map_sparsity"] = sum(map(sparsity, usage.evidence)) / len(usage.evidence)
    if usage.route is not None:
        told |= {"engine": usage.route.engine, "route.reason": usage.route.reason}
    return told


def sparsity(evidence: Evidence) -> float:
    """Hoyer's measure (2004) of one picture's attention: 0 where all tokens get the same, 1 where one gets all."""
    count = len(evidence.weights)
    norm = sum(w * w for w in evidence.weights) ** 0.5
    if count < 2 or norm == 0:
        return 0.0
    return float((count**0.5 - sum(evidence.weights) / norm) / (count**0.5 - 1))
