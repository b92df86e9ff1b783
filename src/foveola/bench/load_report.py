"""``foveola bench --load``: sweep over clients and rates, tell it in the terminal, as JSON and as a page with plots."""

from __future__ import annotations

import base64
import datetime
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from foveola.artifact import Bundle
from foveola.bench.load import LoadPoint, closed_loop, open_loop, point_of
from foveola.bench.machine import busy_note, command_line, describe_machine, describe_versions, platform_line
from foveola.bench.model import describe_model
from foveola.bench.options import BenchOptions
from foveola.bench.server import Client, ServerProcess
from foveola.bench.work import generated_items

FORMAT = "foveola.load/1"
Progress = Callable[[str, int, int], None]


def measure_load(options: BenchOptions, rates: Sequence[float], progress: Progress) -> dict[str, Any]:
    """Start a server on the bundle and sweep: closed loops over ``options.concurrency``, open ones over ``rates``.

    Rates that are 0 or below are shares of the throughput that the widest closed loop reached: -0.5 is half of it.
    """
    machine = describe_machine()
    items = generated_items(options.requests, seed=options.seed)
    points: list[LoadPoint] = []
    with ServerProcess(options.bundle.resolve(), options.cores) as server:
        port = server.port()
        progress("loading the model", 0, 0)
        server.wait_ready()
        closed_loop(lambda: Client(port), items[: options.warmup], 1, options.max_tokens)
        steps = len(options.concurrency) + len(rates)
        for step, clients in enumerate(options.concurrency):
            progress(f"{clients} clients", step, steps)
            arrivals = closed_loop(lambda: Client(port), items, clients, options.max_tokens)
            points.append(point_of("closed", clients, arrivals))
        most = max(point.images_per_s for point in points)
        for step, rate in enumerate(rates):
            level = rate if rate > 0 else -rate * most
            progress(f"{level:.1f} requests a second", len(options.concurrency) + step, steps)
            arrivals = open_loop(lambda: Client(port), items, level, options.max_tokens, seed=options.seed)
            points.append(point_of("open", round(level, 3), arrivals))
        peak = server.peak_memory()
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        "machine": machine,
        "versions": describe_versions(),
        "command": command_line(sys.argv, Path.cwd()),
        "model": describe_model(Bundle.open(options.bundle)),
        "requests": options.requests,
        "max_tokens": options.max_tokens,
        "peak_memory_mib": round(peak / 2**20, 1),
        "points": [point.to_json() for point in points],
        "notes": busy_note(machine),
    }


def load_table(report: Mapping[str, Any]) -> Table:
    """The sweep in the terminal."""
    table = Table(
        "load", "img/s", "P50 ms", "P95 ms", "P99 ms", "TTFT P50 ms", "refused", box=None, header_style="bold"
    )
    for point in report["points"]:
        table.add_row(*_cells(point))
    return table


def _cells(point: Mapping[str, Any]) -> tuple[str, ...]:
    closed = point["kind"] == "closed"
    load = f"{point['level']:g} clients" if closed else f"{point['level']:.2f} requests/s"
    latency = (f"{point['latency_ms'][p]:.0f}" for p in ("p50", "p95", "p99"))
    first, refused = f"{point['first_ms']['p50']:.0f}", f"{point['refused']:.1%}"
    return (load, f"{point['images_per_s']:.2f}", *latency, first, refused)


def load_page(report: Mapping[str, Any]) -> str:
    """The sweep as one page that needs nothing from elsewhere."""
    from foveola.bench.page import STYLE

    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(point))}</tr>" for point in report["points"]
    )
    head = "".join(f"<th>{name}</th>" for name in ("load", "img/s", "P50", "P95", "P99", "TTFT P50", "refused"))
    figures = "".join(
        f"<section><h2>{escape(title)}</h2><p>{escape(words)}</p>"
        f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"></section>'
        for title, words, svg in _plots(report)
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in report["notes"])
    machine = escape(platform_line(report["machine"]))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Load: {escape(report['model']['name'])}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>Load: {escape(report['model']['name'])}</h1>"
        f"<p>{machine}, {escape(report['date'][:10])}</p></header>"
        f"{notes}<section><h2>The sweep</h2><p>Milliseconds; {report['requests']} requests per row, peak memory "
        f"{report['peak_memory_mib']:.0f} MiB. In open loops latency counts from when a request was due.</p>"
        f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div></section>{figures}'
        f"<section><p><code>{escape(report['command'])}</code></p></section></main></body></html>\n"
    )


def _plots(report: Mapping[str, Any]) -> list[tuple[str, str, bytes]]:
    told = [("closed", "Clients at once", "closed loops"), ("open", "Requests per second, offered", "open loops")]
    made = []
    for kind, axis, words in told:
        points = [point for point in report["points"] if point["kind"] == kind]
        if points:
            made.append((axis, f"Throughput and latency of {words}.", _plot(points, axis)))
    return made


def _plot(points: Sequence[Mapping[str, Any]], axis: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    from foveola.bench.plots import LINE, PLOT_STYLE, WIDTH_IN

    with matplotlib.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        levels = [point["level"] for point in points]
        left.plot(levels, [point["images_per_s"] for point in points], "o-", color="#0f766e")
        left.set_ylabel("images per second")
        left.set_ylim(bottom=0)
        for name, colour in (("p50", "#0f766e"), ("p95", "#d9730d"), ("p99", "#b4385f")):
            right.plot(levels, [point["latency_ms"][name] for point in points], "o-", color=colour, label=name)
        right.set_ylabel("latency, ms (logarithmic)")
        right.set_yscale("log")
        right.legend(frameon=False)
        for panel in (left, right):
            panel.set_xlabel(axis.lower())
            panel.grid(True, color=LINE, linewidth=0.6)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()
