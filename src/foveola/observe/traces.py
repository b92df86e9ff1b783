"""OpenTelemetry spans: one per request, one per stage below it, in the trace that the client began.

Spans are made when a request has ended, from its record: as the SDK's finished spans, which costs a fifth of starting
and ending each. They are exported by OpenTelemetry's own batch processor in a thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import fields

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from foveola.exchange import Evidence, Stages, Usage
from foveola.observe.context import TraceContext, own_context
from foveola.observe.records import Record

_NANO = 1_000_000_000
_SUMS = ("first_token_s", "total_s")
_SCOPE = InstrumentationScope("foveola")
Value = str | int | float | Sequence[str]


class Tracing:
    """A watch for ``observed``. ``close`` sends what is left."""

    def __init__(
        self, exporter: SpanExporter, *, model: str, region: str = "", clock: Callable[[], int] = time.time_ns
    ) -> None:
        """``clock`` in nanoseconds since 1970."""
        self._resource = Resource.create({"service.name": "foveola", "model_version": model, "region": region})
        self._processor = BatchSpanProcessor(exporter)
        self._clock = clock

    @classmethod
    def over_http(cls, endpoint: str, *, model: str, region: str = "") -> Tracing:
        """To a collector that speaks OTLP over HTTP; one that is away costs a log line, no answer."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return cls(OTLPSpanExporter(endpoint=endpoint, timeout=5), model=model, region=region)

    def __call__(self, record: Record) -> None:
        """Make the spans of one request; none where the client's trace is not sampled."""
        end = self._clock()
        start = end - int(record.seconds * _NANO)
        own, parent = own_context(record.trace, record.id), TraceContext.of(record.trace)
        if not own.flags & TraceFlags.SAMPLED:
            return
        context = _context(own)
        if record.usage is not None:
            at = start
            for field in fields(Stages):
                seconds = getattr(record.usage.stages, field.name)
                if field.name in _SUMS or seconds <= 0:
                    continue
                below = TraceContext(own.trace, random.getrandbits(64) or 1, own.flags)
                until = at + int(seconds * _NANO)
                self._end(ReadableSpan(
                    field.name.removesuffix("_s"), _context(below), context, self._resource, start_time=at,
                    end_time=until, instrumentation_scope=_SCOPE,
                ))  # fmt: skip
                at = until
        failed = record.outcome in ("refused", "failed")
        self._end(ReadableSpan(
            "invoke", context, None if parent is None else _context(parent, remote=True), self._resource,
            _told(record), kind=SpanKind.SERVER, start_time=start, end_time=end, instrumentation_scope=_SCOPE,
            status=Status(StatusCode.ERROR, record.code) if failed else Status(),
        ))  # fmt: skip

    def _end(self, span: ReadableSpan) -> None:
        self._processor.on_end(span)

    def close(self) -> None:
        """Send what has not been sent; blocks for some seconds at most."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _context(found: TraceContext, *, remote: bool = False) -> SpanContext:
    return SpanContext(found.trace, found.span, remote, TraceFlags(found.flags))


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
        told["image_resolution"] = tuple(f"{image.original[0]}x{image.original[1]}" for image in usage.images)
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
