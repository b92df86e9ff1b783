"""``foveola compress report``: what was done to a checkpoint, as one HTML page and as JSON.

The page shows the lineage. A step whose findings deserve more than a table has a section in ``report_sections``. Size,
accuracy and latency are not in a checkpoint; they come from documents of evidence (``bench/results/*.json``) whose
figures have ``points``: a list of ``{"name", "bytes", "accuracy", "latency_ms"}``. Pictures are given, too: the page
shows which of their visual tokens the checkpoint would keep.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from foveola.artifact import Checkpoint, Finding
from foveola.artifact.atomic import staged_directory
from foveola.compress.report_sections import SECTIONS
from foveola.compress.svg import Point, scatter
from foveola.compress.token_choice import TokenMap, maps_of
from foveola.exchange import Invalid

PAGE, DATA = "report.html", "report.json"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a202c}"
    "table{border-collapse:collapse;margin:.6rem 0}td,th{padding:.15rem .8rem .15rem 0;text-align:left}"
    "td+td{text-align:right;font-variant-numeric:tabular-nums}svg{font:11px system-ui,sans-serif}"
    "h2{margin-top:2rem;border-top:1px solid #e2e8f0;padding-top:1rem}small,figcaption{color:#4a5568}"
    "figure{margin:1rem 0}img,svg{max-width:100%;height:auto}"
)


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report is."""

    page: Path
    data: Path


def write_report(
    checkpoint: Path, out: Path, evidence: Sequence[Path] = (), pictures: Sequence[Path] = (), *, replace: bool = True
) -> Written:
    """Write the report on ``checkpoint`` into the folder ``out``, whole or not at all, with token maps of ``pictures``.

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
    maps = maps_of(opened, pictures) if pictures else []
    data = {
        "name": opened.name,
        "model_hash": opened.model_hash,
        "weight_bytes": sum(info.bytes for info in opened.tensors.values()),
        "lineage": [finding.to_json() for finding in opened.lineage],
        "points": points,
        "token_maps": [{"picture": one.name, "tokens": one.tokens, "kept": one.kept} for one in maps],
    }
    with staged_directory(out, replace=replace) as folder:
        (folder / DATA).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / PAGE).write_text(_page(opened, data["weight_bytes"], points, maps), encoding="utf-8")
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


def _page(checkpoint: Checkpoint, size: object, points: Sequence[Mapping[str, Any]], maps: Sequence[TokenMap]) -> str:
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
            parts.append(section(finding, checkpoint))
    if points:
        parts.append("<h2>Size, accuracy, latency</h2>")
        parts += [_trade(points, "accuracy", "accuracy", 1), _trade(points, "latency_ms", "latency, ms", -1)]
    if maps:
        parts.append(f"<h2>Visual tokens</h2><p>Chosen behind block {maps[0].after} of the tower.</p>")
        parts += [_figure(one) for one in maps]
    title = escape(checkpoint.name)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return head + "".join(parts) + "</html>\n"


def _trade(points: Sequence[Mapping[str, Any]], key: str, label: str, sign: int) -> str:
    """Size against ``key``, with a line along those that nothing beats in both; ``sign`` 1 where more is better."""
    drawn = [Point(p["bytes"] / 1e6, p[key], f"{p['name']}: {p[key]:.4g}", str(p["name"])) for p in points]
    best: list[Point] = []
    for one in sorted(drawn, key=lambda point: (point.x, -sign * point.y)):
        if not best or sign * one.y > sign * best[-1].y:
            best.append(one)
    return scatter(drawn, "megabytes", label, line=best)


def _figure(one: TokenMap) -> str:
    out = io.BytesIO()
    one.sheet.save(out, "PNG")
    data = base64.b64encode(out.getvalue()).decode("ascii")
    words = f"{one.name}: {one.tokens} visual tokens, then {' and '.join(map(str, one.kept))} of them"
    return (
        f'<figure><img alt="{escape(words)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )


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
