"""The report as one HTML page that needs nothing else: no scripts, no fonts, no pictures from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from foveola.bench.machine import MIB, platform_line
from foveola.bench.report import OTHER
from foveola.bench.sample import STAGES
from foveola.bench.table import COLUMNS, STAGE_WORDS, cells, conclusions, number

_CAPTIONS = {
    "latency": (
        "How long an answer takes",
        "Share of requests answered within a time, bytes in to text out. Steeper is steadier, further left is faster; "
        "the dots mark the medians.",
    ),
    "stages": (
        "Where the time goes",
        "Medians per stage. Of a batch of several, each request waits for the whole batch in transformers, and for its "
        "turn in the engine.",
    ),
    "ratios": (
        "Against the others, in the same run",
        "Contenders answer the same questions in turn, so that a busy machine disturbs all of them alike; intervals "
        "from a paired bootstrap.",
    ),
}
STYLE = """
:root{--ink:#1f2933;--pale:#616e7c;--line:#e4e7eb;--accent:#0f766e;--back:#f7f8fa}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1040px;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header p{color:var(--pale);margin:.2rem 0}
h1{font-size:1.9rem;margin:0 0 .3rem;letter-spacing:-.01em}
h2{font-size:1.15rem;margin:0 0 .25rem}
section{background:#fff;border:1px solid var(--line);border-radius:12px;padding:1.25rem 1.4rem;margin-top:1.25rem}
section>p{color:var(--pale);margin:0 0 .9rem;max-width:72ch;font-size:.95rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:1rem;margin-top:1.5rem}
.card{background:#fff;border:1px solid var(--line);border-radius:12px;padding:1rem 1.2rem}
.card b{display:block;font-size:1.7rem;line-height:1.2;color:var(--accent);font-variant-numeric:tabular-nums}
.card span{color:var(--pale);font-size:.9rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{padding:.45rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--pale);font-weight:600}
th:first-child,td:first-child{text-align:left;padding-left:0}
tr:last-child td{border-bottom:0}
img{display:block;width:100%;height:auto}
code{font:.85rem/1.4 ui-monospace,"SFMono-Regular",Menlo,monospace;word-break:break-all}
.note{background:#fff8e6;border-color:#f3dfa6}
ul{margin:.3rem 0 0;padding-left:1.2rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.2rem;margin:0;font-size:.92rem}
dt{color:var(--pale)}dd{margin:0}
@media print{body{background:#fff}section,.card{break-inside:avoid}}
"""


def render_page(report: Mapping[str, Any], plots: Mapping[str, bytes]) -> str:
    """The whole page; ``plots`` are SVG documents by name."""
    model = report["model"]
    title = f"VLM-Bench: {model['name']}"
    machine = escape(platform_line(report["machine"]))
    sections = [_figure(name, plots[name]) for name in ("latency", "stages", "ratios") if name in plots]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1><p>{machine} · {escape(report['machine']['system'])} · "
        f"{escape(report['date'][:10])}</p></header>"
        f"{_cards(report)}{_notes(report)}{_table(report)}{''.join(sections)}{_agreement(report)}{_how(report)}"
        "</main></body></html>\n"
    )


def _cards(report: Mapping[str, Any]) -> str:
    """The few figures that a reader looks for first."""
    first = report["rows"][0]
    rivals = [one for one in report["ratios"] if one["batch"] == first["batch"] and "HTTP" not in one["rival"]]
    cards = [
        (f"{one['value']:.1f}×", f"faster than {one['rival']} ({one['low']:.1f} to {one['high']:.1f})")
        for one in rivals
    ]
    cards += [
        (f"{number(first['latency_ms_p50'])} ms", f"median answer, {first['batch']} at once"),
        (f"{number(first['images_per_s'])} img/s", f"in {first['contender']}"),
        (f"{number(first['peak_memory_mib'])} MiB", "peak memory of its process"),
    ]
    cards += [
        (f"{one['share']:.1%}", f"same answers as {one['rival']}")
        for one in report["agreement"]
        if one["contender"] == first["contender"]
    ]
    told = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in cards
    )
    return f'<div class="cards">{told}</div>'


def _notes(report: Mapping[str, Any]) -> str:
    if not report["notes"]:
        return ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in report["notes"])
    return f'<section class="note"><h2>Before you read on</h2><ul>{lines}</ul></section>'


def _table(report: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("contender", *COLUMNS))
    rows = "".join(
        f"<tr><td>{escape(row['contender'])}</td>{''.join(f'<td>{cell}</td>' for cell in cells(row))}</tr>"
        for row in report["rows"]
    )
    stage_head = "".join(f"<th>{escape(name)}</th>" for name in ("contender", "batch", *STAGE_WORDS.values()))
    stage_rows = "".join(
        f"<tr><td>{escape(row['contender'])}</td><td>{row['batch']}</td>"
        + "".join(f"<td>{number(row['stages_ms'][stage])}</td>" for stage in (*STAGES, OTHER))
        + "</tr>"
        for row in report["rows"]
    )
    platform = escape(report["rows"][0]["platform"])
    return (
        f"<section><h2>The table</h2><p>Platform: {platform}. TTFT is the time to the first text; tok/s is how fast "
        "one answer grows after it; MiB are the most memory that the contender's own process ever held.</p>"
        f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div></section>'
        "<section><h2>Median milliseconds per stage</h2>"
        "<p>Picture: decoding the file. Preprocess: resizing and the prompt. Other: waiting and transport.</p>"
        f'<div class="wide"><table><tr>{stage_head}</tr>{stage_rows}</table></div></section>'
    )


def _figure(name: str, svg: bytes) -> str:
    title, caption = _CAPTIONS[name]
    data = base64.b64encode(svg).decode()
    return (
        f"<section><h2>{escape(title)}</h2><p>{escape(caption)}</p>"
        f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}"></section>'
    )


def _agreement(report: Mapping[str, Any]) -> str:
    parts = []
    for one in report["agreement"]:
        rows = "".join(f"<li>“{escape(ours)}” against “{escape(theirs)}”</li>" for ours, theirs in one["differing"])
        told = f"{one['contender']} and {one['rival']}: the same text for {one['same']} of {one['count']} questions"
        parts.append(f"<li>{escape(told)}{f'<ul>{rows}</ul>' if rows else ''}</li>")
    return f"<section><h2>Same answers?</h2><ul>{''.join(parts)}</ul></section>" if parts else ""


def _how(report: Mapping[str, Any]) -> str:
    options, model = report["options"], report["model"]
    facts = {
        "model": f"{model['name']}, {model['bytes'] / MIB:.1f} MiB, {model['model_hash'][:16]}",
        "asked": f"{options['requests']} requests per contender and batch, {options['questions']} different questions, "
        f"greedy, at most {options['max_tokens']} tokens",
        "pinned to": f"{options['cores']} cores; memory {report['machine']['memory_gib']} GiB; "
        f"others took {report['machine']['busy']:.0%} of the cores when it began",
        "versions": ", ".join(f"{name} {value}" for name, value in report["versions"].items()),
        "measured": report["date"],
    }
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    lines = "".join(f"<li>{escape(line)}</li>" for line in conclusions(report))
    return (
        f"<section><h2>How this was measured</h2><dl>{told}<dt>command</dt>"
        f"<dd><code>{escape(report['command'])}</code></dd></dl><ul>{lines}</ul></section>"
    )
