"""Spans of requests: attributes, stages below them, the client's trace, and what reaches a collector over HTTP."""

from __future__ import annotations

import http.server
import threading

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the door `traces` is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from foveola.exchange import Evidence, ImageUse, Route, Stages, Usage
from foveola.observe.context import TraceContext, own_context
from foveola.observe.records import Record
from foveola.observe.trace_options import TraceOptions
from foveola.observe.traces import Tracing, sparsity

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
USAGE = Usage(
    40, 16, 3,
    images=(ImageUse((640, 480), (224, 168), 48),),
    stages=Stages(vision_s=0.02, prefill_s=0.01, first_token_s=0.03, total_s=0.04),
    evidence=(Evidence((2, 2), (0.25, 0.25, 0.25, 0.25), 1.0), Evidence((2, 2), (1.0, 0.0, 0.0, 0.0), 1.0)),
    route=Route("small", "confident"),
)  # fmt: skip


class Kept(SpanExporter):
    def __init__(self):
        self.spans = []

    def export(self, spans):
        self.spans += spans
        return SpanExportResult.SUCCESS


def spans_of(record):
    kept = Kept()
    tracing = Tracing(kept, model="abc", region="hall", clock=lambda: 10**18)
    tracing(record)
    tracing.close()
    return {span.name: span for span in kept.spans}


def test_a_request_is_a_span_with_its_stages_below():
    spans = spans_of(Record("r", "answered", 0.05, usage=USAGE, text="scratch", chars=7, client="line", trace=PARENT))
    assert set(spans) == {"invoke", "vision", "prefill"}
    top = spans["invoke"]
    assert top.end_time - top.start_time == 50_000_000
    assert dict(top.attributes) == {
        "request.id": "r", "outcome": "answered", "caption_length": 7, "client": "line", "tokens.prompt": 40,
        "tokens.visual": 16, "tokens.completion": 3, "tokens.cached": 0, "image_resolution": ("640x480",),
        "cross_attn_map_sparsity": 0.5, "engine": "small", "route.reason": "confident",
    }  # fmt: skip
    for name, length in (("vision", 20_000_000), ("prefill", 10_000_000)):
        assert spans[name].parent.span_id == top.context.span_id
        assert spans[name].end_time - spans[name].start_time == length
    assert top.resource.attributes["model_version"] == "abc"


def test_the_clients_trace_goes_on():
    top = spans_of(Record("r", "answered", 0.05, trace=PARENT))["invoke"]
    assert f"{top.context.trace_id:032x}" == "ab" * 16
    assert f"{top.parent.span_id:016x}" == "cd" * 8


@pytest.mark.parametrize("text", ["", "nonsense", PARENT.replace("ab", "00"), PARENT.upper(), PARENT + "x"])
def test_what_is_no_parent_begins_a_trace(text):
    assert spans_of(Record("r", "answered", 0.05, trace=text))["invoke"].parent is None


def test_a_refusal_is_an_error():
    top = spans_of(Record("r", "refused", 0.01, code="busy"))["invoke"]
    assert not top.status.is_ok
    assert top.status.description == "busy"
    assert top.attributes["error.code"] == "busy"


@pytest.mark.parametrize(("weights", "wanted"), [
    ((0.25,) * 4, 0.0), ((0.0, 0.3, 0.0, 0.0), 1.0), ((0.0,) * 4, 0.0), ((1.0,), 0.0),
])  # fmt: skip
def test_sparsity_is_hoyers(weights, wanted):
    assert sparsity(Evidence((1, len(weights)), weights, sum(weights))) == pytest.approx(wanted)


def test_a_collector_gets_them_over_http():
    bodies, came = [], threading.Event()

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            came.set()

        def log_message(self, format, *args):
            """Nothing on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tracing = Tracing.over_http(f"http://127.0.0.1:{server.server_port}/v1/traces", model="abc")
    tracing(Record("r", "answered", 0.05, usage=USAGE))
    tracing.close()
    assert came.wait(20)
    server.shutdown()
    server.server_close()
    sent = ExportTraceServiceRequest.FromString(bodies[0])
    names = [span.name for part in sent.resource_spans for scope in part.scope_spans for span in scope.spans]
    assert sorted(names) == ["invoke", "prefill", "vision"]


def test_an_address_that_is_none_is_told():
    with pytest.raises(ValueError, match="`endpoint` is 'collector:4318'; expected an address that begins with http"):
        TraceOptions("collector:4318")


def test_whoever_is_asked_below_knows_the_span_before_it_exists():
    for parent in (PARENT, ""):
        passed_on = own_context(parent, "r")
        top = spans_of(Record("r", "answered", 0.05, usage=USAGE, trace=parent))["invoke"]
        assert (top.context.trace_id, top.context.span_id) == (passed_on.trace, passed_on.span)
        assert TraceContext.of(str(passed_on)) == passed_on
    assert own_context(PARENT, "r").trace == TraceContext.of(PARENT).trace
    assert own_context(PARENT, "r") != own_context(PARENT, "s")


@pytest.mark.parametrize("given", ["", "00-x", "00-" + "0" * 32 + "-" + "cd" * 8 + "-01", PARENT.upper()])
def test_what_is_no_context_is_none(given):
    assert TraceContext.of(given) is None
