"""Alert rules for Prometheus, and their unit tests, made from the metrics' definitions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from foveola.observe import definitions as names

LEAST_SAMPLES = 30


@dataclass(frozen=True, slots=True)
class Alert:
    """``expr`` true for ``wait`` raises it. ``fires`` and ``quiet`` are input series (name → values in promtool's
    notation, one a minute) with which it does and does not fire after ``minutes``."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    action: str
    minutes: int
    fires: dict[str, str]
    quiet: dict[str, str]


_AT = '{model_version="v1",region="r1"}'
_ACCURACY, _SAMPLES = names.ACCURACY.series, names.ACCURACY_SAMPLES.series
_QPS, _REFUSED, _LATENCY = names.QPS.series, names.REFUSED.series, names.LATENCY.series


def _labelled(series: str, more: str) -> str:
    return f'{series}{{model_version="v1",region="r1",{more}}}'


ALERTS = (
    Alert(
        "FoveolaAccuracyLow",
        f"avg_over_time({_ACCURACY}[30m]) < 0.92 and {_SAMPLES} >= {LEAST_SAMPLES}",
        "5m", "critical", "Less than 92 % of the labelled answers of the last 30 minutes are right.",
        "Look at the drift charts and the last labelled answers; roll back if a version has just changed.", 45,
        {_ACCURACY + _AT: "0.85x60", _SAMPLES + _AT: "100x60"}, {_ACCURACY + _AT: "0.5x60", _SAMPLES + _AT: "3x60"},
    ),
    Alert(
        "FoveolaLatencyHigh",
        f"histogram_quantile(0.99, sum by (le, model_version, region) (rate({_LATENCY}[5m]))) > 2",
        "5m", "warning", "One answer in a hundred takes more than 2 s.",
        "Look at the queue and the stages; lower the budget of visual tokens or add a replica.", 20,
        {_labelled(_LATENCY, 'le="2.0"'): "0+50x60", _labelled(_LATENCY, 'le="5.0"'): "0+100x60",
         _labelled(_LATENCY, 'le="+Inf"'): "0+100x60"},
        {_labelled(_LATENCY, 'le="2.0"'): "0+100x60", _labelled(_LATENCY, 'le="5.0"'): "0+100x60",
         _labelled(_LATENCY, 'le="+Inf"'): "0+100x60"},
    ),
    Alert(
        "FoveolaRefusing",
        f"sum by (model_version, region) (rate({_REFUSED}[5m])) "
        f"> 0.05 * sum by (model_version, region) (rate({_QPS}[5m]))",
        "5m", "warning", "More than one request in twenty is refused.",
        "See by `code` what is refused: busy means too little room, bad_image a broken camera.", 20,
        {_labelled(_REFUSED, 'code="busy"'): "0+10x60", _QPS + _AT: "0+100x60"},
        {_labelled(_REFUSED, 'code="busy"'): "0+1x60", _QPS + _AT: "0+100x60"},
    ),
    Alert(
        "FoveolaSilent",
        f"rate({_QPS}[10m]) == 0 and {names.QUEUED.series} > 0",
        "5m", "critical", "Requests wait and none comes to an end.",
        "Look at /health/ready and the log; restart the server.", 25,
        {_QPS + _AT: "100x60", names.QUEUED.series + _AT: "4x60"},
        {_QPS + _AT: "100x60", names.QUEUED.series + _AT: "0x60"},
    ),
    Alert(
        "FoveolaDrift",
        f'max by (camera, chart, model_version, region) ({names.DRIFT.series}{{chart!="certified"}}) > 1',
        "0m", "warning", "A camera's pictures are no longer like the reference.",
        "Open the console: the timeline shows the frames. Clean the lens, check light and focus, then acknowledge.", 10,
        {_labelled(names.DRIFT.series, 'camera="c",chart="looks"'): "1.2x60"},
        {_labelled(names.DRIFT.series, 'camera="c",chart="looks"'): "0.9x60"},
    ),
    Alert(
        "FoveolaDriftCertified",
        f'max by (camera, model_version, region) ({names.DRIFT.series}{{chart="certified"}}) > 1',
        "0m", "critical", "It is certain that a camera's pictures have changed.",
        "Hold what this camera has passed since, and see to the camera.", 10,
        {_labelled(names.DRIFT.series, 'camera="c",chart="certified"'): "1.01x60"},
        {_labelled(names.DRIFT.series, 'camera="c",chart="looks"'): "1.2x60"},
    ),
)  # fmt: skip


def rules() -> dict[str, Any]:
    """The rule file."""
    return {
        "groups": [
            {
                "name": "foveola",
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expr,
                        "for": alert.wait,
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.summary, "action": alert.action},
                    }
                    for alert in ALERTS
                ],
            }
        ]
    }


def rule_tests(rule_file: str) -> dict[str, Any]:
    """Unit tests for promtool: every alert fires on its series, and does not on series that look much like them."""
    return {
        "rule_files": [rule_file],
        "evaluation_interval": "1m",
        "tests": [_test(alert, fires) for alert in ALERTS for fires in (True, False)],
    }


def _test(alert: Alert, fires: bool) -> dict[str, Any]:
    given = alert.fires if fires else alert.quiet
    expected = []
    if fires:
        labels = {"severity": alert.severity, "model_version": "v1", "region": "r1"}
        labels |= {"camera": "c"} if "camera" in alert.expr else {}
        labels |= {"chart": "looks"} if "by (camera, chart" in alert.expr else {}
        annotations = {"summary": alert.summary, "action": alert.action}
        expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in given.items()],
        "alert_rule_test": [{"eval_time": f"{alert.minutes}m", "alertname": alert.name, "exp_alerts": expected}],
    }


def as_yaml(document: dict[str, Any]) -> str:
    """JSON is YAML: no library is needed to write what Prometheus reads."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
