"""``foveola compress report``: what was done to a checkpoint, as one HTML page and as JSON.

The page shows the lineage. A step whose findings deserve more than a table adds a section: a function from its
finding to HTML, under the finding's step in ``SECTIONS``. Size, accuracy and latency are not in a checkpoint; they
come from documents of evidence (``bench/results/*.json``) whose figures have ``points``: a list of
``{"name", "bytes", "accuracy", "latency_ms"}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from foveola.artifact import Checkpoint, Finding
from foveola.artifact.atomic import staged_directory
from foveola.compress.svg import Point, bars, scatter
from foveola.exchange import Invalid

PAGE, DATA = "report.html", "report.json"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a202c}"
    "table{border-collapse:collapse;margin:.6rem 0}td,th{padding:.15rem .8rem .15rem 0;text-align:left}"
    "td+td{text-align:right;font-variant-numeric:tabular-nums}svg{font:11px system-ui,sans-serif}"
    "h2{margin-top:2rem;border-top:1px solid #e2e8f0;padding-top:1rem}small{color:#4a5568}"
)


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report is."""

    page: Path
    data: Path


def write_report(checkpoint: Path, out: Path, evidence: Sequence[Path] = (), *, replace: bool = True) -> Written:
    """Write the report on ``checkpoint`` into the folder ``out``, whole or not at all.

    Raises ``Damaged`` for a checkpoint that is not whole, ``Invalid`` for one without lineage or evidence that is none.
    """
    opened = Checkpoint.open(checkpoint)
    if not opened.lineage:
        raise Invalid(
            f"{opened.name} has no lineage, so there is nothing to report; name a checkpoint that foveola compress "
            "wrote.",
            field="what",
        )
    points = [point for file in evidence for point in _points(file)]
    data = {
        "name": opened.name,
        "model_hash": opened.model_hash,
        "weight_bytes": sum(info.bytes for info in opened.tensors.values()),
        "lineage": [finding.to_json() for finding in opened.lineage],
        "points": points,
    }
    with staged_directory(out, replace=replace) as folder:
        (folder / DATA).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / PAGE).write_text(_page(opened, data["weight_bytes"], points), encoding="utf-8")
    return Written(out / PAGE, out / DATA)


def _points(file: Path) -> list[dict[str, Any]]:
    try:
        points = json.loads(file.read_text(encoding="utf-8"))["figures"]["points"]
        return [{key: point[key] for key in ("name", "bytes", "accuracy", "latency_ms")} for point in points]
    except (OSError, ValueError, KeyError, TypeError):
        raise Invalid(
            f"{file.name} holds no points of size, accuracy and latency; name a document of bench/results that does.",
            field="evidence",
        ) from None


def _page(checkpoint: Checkpoint, size: object, points: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"<h1>{escape(checkpoint.name)}</h1>", f"<p>{size:,} bytes of weights, model hash "]
    parts.append(f"<code>{escape((checkpoint.model_hash or 'none')[:16])}</code></p>")
    for finding in checkpoint.lineage:
        kind = "measured" if finding.measured else "modelled"
        parts.append(
            f"<h2>{escape(finding.step)}</h2><p>{escape(finding.changed)} <small>({finding.seconds:.1f} s)</small></p>"
        )
        parts.append(_figures(finding, kind))
        section = SECTIONS.get(finding.step)
        if section is not None:
            parts.append(section(finding))
    if points:
        parts.append("<h2>Size, accuracy, latency</h2>")
        for key, label in (("accuracy", "accuracy"), ("latency_ms", "latency, ms")):
            drawn = [Point(p["bytes"] / 1e6, p[key], f"{p['name']}: {p[key]:.4g}", str(p["name"])) for p in points]
            parts.append(scatter(drawn, "megabytes", label))
    title = escape(checkpoint.name)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return head + "".join(parts) + "</html>\n"


def _figures(finding: Finding, kind: str) -> str:
    names = list(dict.fromkeys([*finding.before, *finding.after]))
    if not names:
        return ""
    rows = [
        f"<tr><td>{escape(name)}</td><td>{_number(finding.before.get(name, ''))}</td>"
        f"<td>{_number(finding.after.get(name, ''))}</td></tr>"
        for name in names
    ]
    return f"<table><tr><th>{kind}</th><th>before</th><th>after</th></tr>{''.join(rows)}</table>"


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _layers(finding: Finding) -> str:
    """Error per layer: predicted on calibration samples against measured on held-out ones, and where it lies."""
    layers: list[dict[str, Any]] = list(finding.options.get("layers", []))
    points = [
        Point(one["predicted"], one["measured"], f"{one['path']}: {one['chosen']}", str(one["format"]))
        for one in layers
    ]
    named = [(".".join(str(one["path"]).split(".")[-4:]), float(one["measured"])) for one in layers]
    worst = sorted(named, key=lambda one: -one[1])[:12]
    return (
        "<h3>Error of every layer's output, relative</h3>"
        + scatter(points, "predicted", "measured on held-out samples", log=True, diagonal=True)
        + "<h3>Round-to-nearest against what was kept</h3>"
        + scatter(
            [Point(one["nearest"], one["measured"], str(one["path"]), str(one["chosen"])) for one in layers],
            "round-to-nearest", "kept", log=True, diagonal=True,
        )
        + "<h3>The layers that lost most</h3>"
        + bars(worst, "relative error")
    )  # fmt: skip


SECTIONS: dict[str, Callable[[Finding], str]] = {"compress.awq": _layers}
"""Step of a finding -> what the page shows of it besides its figures."""
