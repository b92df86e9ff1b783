"""Metrics: the names, labels and buckets that dashboards rely on, and what each record adds."""

from __future__ import annotations

from dataclasses import fields

from prometheus_client.parser import text_string_to_metric_families

from foveola.exchange import Refusal, Stages, Usage
from foveola.observe import Metrics, Record
from foveola.observe import definitions as names

COMMON = {"model_version": "0123456789ab", "region": "line-7"}
USAGE = Usage(90, 64, 5, stages=Stages(vision_s=0.004, decode_s=0.3, total_s=0.4))


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, frozenset((COMMON | labels).items())))


def some_metrics() -> Metrics:
    return Metrics(model_hash="0123456789abcdef" * 4, region="line-7")


def test_series_exist_before_the_first_request() -> None:
    metrics = some_metrics()
    for name in ("ocr_qps_total", "ocr_latency_seconds_count", "foveola_cancelled_total", "foveola_queue_depth"):
        assert value(metrics, name) == 0


def test_an_answer_is_counted_everywhere() -> None:
    metrics = some_metrics()
    metrics(Record("r", "answered", 0.15, 0.1, None, USAGE))
    assert value(metrics, "ocr_qps_total") == 1
    assert value(metrics, "ocr_latency_seconds_sum") == 0.15
    assert [value(metrics, "ocr_latency_seconds_bucket", le=le) for le in ("0.05", "0.1", "0.2", "0.5", "1.0")] == [
        0,
        0,
        1,
        1,
        1,
    ]
    assert value(metrics, "foveola_stage_seconds_bucket", stage="vision", le="0.005") == 1
    assert value(metrics, "foveola_stage_seconds_sum", stage="decode") == 0.3
    assert [value(metrics, "foveola_tokens_total", kind=kind) for kind in ("prompt", "visual", "completion")] == [
        90,
        64,
        5,
    ]


def test_refusals_failures_and_cancelling_are_told_apart() -> None:
    metrics = some_metrics()
    metrics(Record("a", "refused", 0.01, code="busy"))
    metrics(Record("b", "refused", 0.01, code="busy"))
    metrics(Record("c", "failed", 0.01, code="internal_error"))
    metrics(Record("d", "cancelled", 0.01))
    assert value(metrics, "ocr_qps_total") == 4
    assert value(metrics, "ocr_latency_seconds_count") == 0
    assert value(metrics, "foveola_refused_total", code="busy") == 2
    assert value(metrics, "foveola_refused_total", code="internal_error") == 1
    assert value(metrics, "foveola_cancelled_total") == 1


def test_the_queue_is_asked_when_metrics_are_read() -> None:
    metrics = some_metrics()
    depth = [3.0]
    metrics.watch_queue(lambda: depth[0], lambda: 1.0)
    assert value(metrics, "foveola_queue_depth") == 3
    depth[0] = 0
    assert value(metrics, "foveola_queue_depth") == 0
    assert value(metrics, "foveola_active") == 1


def test_two_models_do_not_share_a_registry() -> None:
    one, other = some_metrics(), some_metrics()
    one(Record("a", "answered", 0.1, 0.1, None, USAGE))
    assert value(other, "ocr_qps_total") == 0


def test_the_greatest_queue_depth_is_remembered() -> None:
    metrics, depth = some_metrics(), [0.0]
    metrics.watch_queue(lambda: depth[0], lambda: 0.0)
    depth[0] = 3.0
    metrics(Record("r", "answered", 0.1))
    depth[0] = 1.0
    assert value(metrics, "foveola_queue_depth") == 1
    assert value(metrics, "foveola_queue_depth_most") == 3


def test_series_that_are_there_from_the_start_are_those_that_count() -> None:
    assert names.STAGE.known == tuple(field.name.removesuffix("_s") for field in fields(Stages))
    text = Metrics(model_hash="0" * 64).render().decode()
    assert 'foveola_refused_total{code="busy",model_version="000000000000",region=""} 0.0' in text
    for code in names.REFUSED.known:
        assert code in {kind.code for kind in every(Refusal)} | {"internal_error"}


def every(kind: type[Refusal]) -> set[type[Refusal]]:
    return {kind, *(one for below in kind.__subclasses__() for one in every(below))}
