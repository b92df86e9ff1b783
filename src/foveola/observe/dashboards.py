"""The Grafana dashboard, made from the metrics' definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from foveola.observe import definitions as names

_AT = '{model_version=~"$model_version",region=~"$region"}'
WIDTH = 24


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its queries as (query, legend), the unit as Grafana names it, how wide it is of ``WIDTH``, and the
    value at which an alert looks, drawn as a line."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "heatmap"] = "timeseries"
    width: int = 8
    help: str = ""
    bound: float | None = None


def _rate(series: str, by: str = "", more: str = "") -> str:
    at = _AT[:-1] + (f",{more}" if more else "") + "}"
    summed = f"sum by ({by}) " if by else "sum "
    return f"{summed}(rate({series}{at}[$__rate_interval]))"


def _quantile(q: float, series: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {_rate(series, labels)})"


PANELS = (
    Panel("Requests per second", ((_rate(names.QPS.series, "model_version"), "{{model_version}}"),), "reqps"),
    Panel(
        "Latency",
        tuple((_quantile(q, names.LATENCY.series), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
        "s",
    ),
    Panel(
        "Accuracy",
        ((f"avg by (model_version) ({names.ACCURACY.series}{_AT})", "{{model_version}}"),),
        "percentunit",
        help="Share of right answers among those that were labelled; see how many beside it.",
        bound=0.92,
    ),
    Panel(
        "Labelled answers",
        ((f"sum by (model_version) ({names.ACCURACY_SAMPLES.series}{_AT})", "{{model_version}}"),),
        "short",
        "stat",
        4,
    ),
    Panel(
        "Queue",
        (
            (f"sum ({names.QUEUED.series}{_AT})", "waiting"),
            (f"sum ({names.ACTIVE.series}{_AT})", "computing"),
            (f"max ({names.QUEUED_MOST.series}{_AT})", "most"),
        ),
        "short",
    ),
    Panel(
        "Time per stage (mean)",
        (
            (
                f"sum by (stage) (rate({names.STAGE.name}_sum{_AT}[$__rate_interval]))"
                f" / sum by (stage) (rate({names.STAGE.name}_count{_AT}[$__rate_interval]))",
                "{{stage}}",
            ),
        ),
        "s",
        width=12,
    ),
    Panel(
        "Tokens of pictures",
        ((_rate(names.PICTURE_TOKENS.series, "le", 'when="read"'), "{{le}}"),),
        "short",
        "heatmap",
        12,
        "How many visual tokens of a picture the decoder read.",
    ),
    Panel("Refused, by code", ((_rate(names.REFUSED.series, "code"), "{{code}}"),), "reqps"),
    Panel(
        "Verdicts of the guards", ((_rate(names.VERDICTS.series, "guard, outcome"), "{{guard}} {{outcome}}"),), "reqps"
    ),
    Panel("Which engine answered", ((_rate(names.ROUTED.series, "engine, reason"), "{{engine}} {{reason}}"),), "reqps"),
    Panel(
        "Drift: share of the bound",
        ((f"max by (camera, chart) ({names.DRIFT.series}{_AT})", "{{camera}} {{chart}}"),),
        "percentunit",
        width=12,
        bound=1.0,
    ),
    Panel(
        "Drift: alarms",
        ((f"sum by (camera, chart) (increase({names.DRIFT_ALARMS.series}{_AT}[1h]))", "{{camera}} {{chart}}"),),
        "short",
        width=6,
    ),
    Panel(
        "Described rule: mean cosine",
        ((f"min by (camera) ({names.DRIFT_RULE.series}{_AT})", "{{camera}}"),),
        "short",
        width=6,
        help="An indicator that people know; nothing is decided on it.",
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard's JSON, schema version 39 (Grafana 10 and later), with a data source to choose."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "uid": "foveola", "title": "Foveola", "schemaVersion": 39, "timezone": "browser", "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"}, "tags": ["foveola"],
        "templating": {"list": [
            {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
            *(_variable(label, source) for label in names.COMMON),
        ]},
        "panels": _placed(source),
    }  # fmt: skip


def _variable(label: str, source: dict[str, str]) -> dict[str, Any]:
    query = f"label_values({names.QPS.series}, {label})"
    return {
        "name": label, "label": label, "type": "query", "datasource": source, "query": query, "definition": query,
        "refresh": 2, "includeAll": True, "allValue": ".*", "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _placed(source: dict[str, str]) -> list[dict[str, Any]]:
    """The panels in rows, left to right."""
    placed, x, y, height = [], 0, 0, 8
    for number, panel in enumerate(PANELS, 1):
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        targets = [
            {
                "refId": chr(ord("A") + i), "datasource": source, "expr": query, "legendFormat": legend,
                "format": "heatmap" if panel.kind == "heatmap" else "time_series",
            }
            for i, (query, legend) in enumerate(panel.queries)
        ]  # fmt: skip
        placed.append({
            "id": number, "title": panel.title, "type": panel.kind, "description": panel.help, "datasource": source,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": height}, "targets": targets,
            "fieldConfig": {"defaults": {"unit": panel.unit, **_line_at(panel.bound)}, "overrides": []}, "options": {},
        })  # fmt: skip
        x += panel.width
    return placed


def _line_at(bound: float | None) -> dict[str, Any]:
    """A red line at the value at which an alert looks."""
    if bound is None:
        return {}
    steps = [{"color": "transparent", "value": None}, {"color": "red", "value": bound}]
    return {"thresholds": {"mode": "absolute", "steps": steps}, "custom": {"thresholdsStyle": {"mode": "line"}}}
