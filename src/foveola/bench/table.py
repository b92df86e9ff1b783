"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from foveola.bench.machine import MIB, platform_line
from foveola.bench.report import OTHER
from foveola.bench.sample import STAGES

WIDE = 120
COLUMNS = ("batch", "img/s", "TTFT P50 / P95 ms", "tok/s", "P50 / P95 / P99 ms", "MiB")

STAGE_WORDS = {
    "decode_image": "picture",
    "preprocess": "preprocess",
    "vision": "vision",
    "prefill": "prefill",
    "decode": "tokens",
    OTHER: "other",
}


def render(report: Mapping[str, Any], *, width: int) -> RenderableType:
    """Everything that a person wants to see at once: the table, the stages, the ratios, what to know besides.

    Below ``WIDE`` characters of ``width`` the table does without its column for the platform, which the head names.
    """
    model, options = report["model"], report["options"]
    head = Text()
    head.append("VLM-Bench  ", style="bold")
    head.append(f"{model['name']}, {model['bytes'] / MIB:.1f} MiB, on {platform_line(report['machine'])}; ")
    head.append(f"{options['requests']} requests each, at most {options['max_tokens']} tokens\n")
    parts: list[RenderableType] = [head, main_table(report, platform=width >= WIDE), Text(), stage_table(report)]
    parts += [Text(), *(Text(line) for line in conclusions(report))]
    parts += [Text(line, style="yellow") for line in report["notes"]]
    return Group(*parts)


def main_table(report: Mapping[str, Any], *, platform: bool = True) -> Table:
    """Platform, contender, batch, img/s, time to the first token, tok/s, latencies, memory."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ("platform", "contender") if platform else ("contender",)
    for name in names:
        table.add_column(name, no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in report["rows"]:
        table.add_row(*(escape(row[name]) for name in names), *cells(row))
    return table


def cells(row: Mapping[str, Any]) -> list[str]:
    """One row's figures as text, under ``COLUMNS``."""
    return [
        str(row["batch"]),
        number(row["images_per_s"]),
        together(row["ttft_ms_p50"], row["ttft_ms_p95"]),
        number(row["tokens_per_s"]),
        together(row["latency_ms_p50"], row["latency_ms_p95"], row["latency_ms_p99"]),
        number(row["peak_memory_mib"]),
    ]


def together(*values: float) -> str:
    """Percentiles in one cell."""
    return " / ".join(number(value) for value in values)


def number(value: float) -> str:
    """Three digits that count, never an exponent; nothing measured is a dash."""
    if value == 0:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def stage_table(report: Mapping[str, Any]) -> Table:
    """Median milliseconds per stage."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("median ms", no_wrap=True)
    for name in ("batch", *STAGE_WORDS.values()):
        table.add_column(name, justify="right")
    for row in report["rows"]:
        found = [number(row["stages_ms"][stage]) for stage in (*STAGES, OTHER)]
        table.add_row(escape(row["contender"]), str(row["batch"]), *found)
    return table


def conclusions(report: Mapping[str, Any]) -> list[str]:
    """The ratios and the shares of equal answers, a sentence each."""
    lines = []
    for one in report["ratios"]:
        lines.append(
            f"{one['rival']} takes {one['value']:.2f} times as long as {one['contender']} "
            f"({one['low']:.2f} to {one['high']:.2f}) at batch {one['batch']}."
        )
    for one in report["agreement"]:
        lines.append(f"{one['contender']} and {one['rival']} give the same answer to {one['same']} of {one['count']}.")
    return lines
