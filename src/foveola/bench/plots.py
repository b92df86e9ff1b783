"""The report's plots as SVG, drawn by matplotlib without a display. Needs the bench door."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from foveola.bench.report import OTHER
from foveola.bench.sample import STAGES
from foveola.bench.table import STAGE_WORDS, number

WIDTH_IN = 9.0
INK, PALE, LINE = "#1f2933", "#7b8794", "#d9dee5"
CONTENDERS = ("#0f766e", "#5aa9a0", "#d9730d", "#7c5cbf", "#b4385f")
STAGE_COLOURS = {
    "decode_image": "#c3cbd6",
    "preprocess": "#8fa3bf",
    "vision": "#0f766e",
    "prefill": "#2f6fbf",
    "decode": "#7c5cbf",
    OTHER: "#eceff3",
}
PLOT_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": LINE,
    "axes.labelcolor": PALE,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "text.color": INK,
    "svg.hashsalt": "foveola",  # the same figures give the same bytes
}


def colours(report: Mapping[str, Any]) -> dict[str, str]:
    """One colour per contender, in the order of the table."""
    names = list(dict.fromkeys(row["contender"] for row in report["rows"]))
    return {name: CONTENDERS[place % len(CONTENDERS)] for place, name in enumerate(names)}


def draw_plots(report: Mapping[str, Any], *, kind: str = "svg") -> dict[str, bytes]:
    """Every plot under its name (``latency``, ``stages``, ``ratios`` where there are any), as SVG or PNG."""
    with matplotlib.rc_context(PLOT_STYLE):
        figures = {"latency": _latency(report), "stages": _stages(report)}
        if report["ratios"]:
            figures["ratios"] = _ratios(report)
        return {name: _encoded(figure, kind) for name, figure in figures.items()}


def _encoded(figure: Figure, kind: str) -> bytes:
    out = io.BytesIO()
    # No date, so that a page changes only when its figures do.
    figure.savefig(out, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _latency(report: Mapping[str, Any]) -> Figure:
    """The share of requests that were answered within a time, one panel per batch."""
    batches = list(dict.fromkeys(one["batch"] for one in report["latencies"]))
    figure = Figure(figsize=(WIDTH_IN, 3.5), layout="constrained")
    panels = figure.subplots(1, len(batches), squeeze=False, sharey=True)[0]
    colour = colours(report)
    for batch, panel in zip(batches, panels, strict=True):
        shown = [one for one in report["latencies"] if one["batch"] == batch]
        for place, one in enumerate(shown):
            _steps(panel, one["latency_ms"], one["contender"], colour[one["contender"]], label_left=place == 0)
        panel.set_title(f"{batch} at once")
        _time_axis(panel)
        panel.set_ylim(0, 1.02)
    panels[0].set_ylabel("share answered within")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=len(names), frameon=False)
    return figure


def _steps(panel: Axes, latency_ms: Sequence[float], name: str, colour: str, *, label_left: bool) -> None:
    """One contender's curve. The first one's median is written on the left, so that close neighbours do not collide."""
    ordered = np.sort(np.asarray(latency_ms))
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    panel.step(np.r_[ordered[0], ordered], np.r_[0, share], where="post", color=colour, linewidth=2, label=name)
    middle = float(np.median(ordered))
    panel.plot([middle], [0.5], "o", color=colour, markersize=5)
    side: dict[str, Any] = {"xytext": (-7, 5), "ha": "right"} if label_left else {"xytext": (7, -11), "ha": "left"}
    panel.annotate(f"{number(middle)} ms", (middle, 0.5), textcoords="offset points", color=colour, fontsize=9, **side)


def _time_axis(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.set_xlabel("latency, ms (logarithmic)")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
    panel.grid(True, which="major", color=LINE, linewidth=0.6)
    panel.margins(x=0.16)


def _stages(report: Mapping[str, Any]) -> Figure:
    """Where the time goes: milliseconds on the left, the same as shares on the right."""
    rows = report["rows"]
    figure = Figure(figsize=(WIDTH_IN, 1.5 + 0.42 * len(rows)), layout="constrained")
    absolute, share = figure.subplots(1, 2, sharey=True, width_ratios=(1.15, 1))
    places = np.arange(len(rows))
    sums = np.array([sum(row["stages_ms"].values()) for row in rows])
    left = np.zeros(len(rows))
    for stage in (*STAGES, OTHER):
        wide = np.array([row["stages_ms"][stage] for row in rows])
        style = {"color": STAGE_COLOURS[stage], "height": 0.66, "edgecolor": "white", "linewidth": 0.5}
        absolute.barh(places, wide, left=left, label=STAGE_WORDS[stage], **style)
        share.barh(places, wide / sums, left=left / sums, **style)
        left += wide
    for place, total in zip(places, sums, strict=True):
        absolute.annotate(f"{number(total)} ms", (total, place), (5, 0), textcoords="offset points", va="center")
    absolute.set_yticks(places, [f"{row['contender']}, {row['batch']} at once" for row in rows], color=INK)
    absolute.invert_yaxis()
    absolute.margins(x=0.16)
    absolute.set_xlabel("ms, sum of the stages' medians")
    share.set_xlim(0, 1)
    share.set_xlabel("share of it")
    share.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    for panel in (absolute, share):
        panel.tick_params(axis="y", length=0)
    figure.legend(*absolute.get_legend_handles_labels(), loc="outside upper left", ncols=6, frameon=False, fontsize=9)
    return figure


def _ratios(report: Mapping[str, Any]) -> Figure:
    """How many times longer the others take, with intervals."""
    ratios = report["ratios"]
    figure = Figure(figsize=(WIDTH_IN, 1.2 + 0.4 * len(ratios)), layout="constrained")
    panel = figure.subplots()
    colour = colours(report)
    places = np.arange(len(ratios))
    for place, one in zip(places, ratios, strict=True):
        panel.plot([one["low"], one["high"]], [place, place], color=colour[one["rival"]], linewidth=5, alpha=0.35)
        panel.plot([one["value"]], [place], "o", color=colour[one["rival"]], markersize=8)
        told = f"{one['value']:.2f}×"
        panel.annotate(told, (one["high"], place), (9, 0), textcoords="offset points", va="center", color=INK)
    panel.axvline(1, color=PALE, linewidth=1, linestyle=(0, (3, 3)))
    panel.set_yticks(places, [f"{one['rival']}, {one['batch']} at once" for one in ratios], color=INK)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(ratios) - 0.5, -0.5)
    panel.set_xlim(0, max(1.0, *(one["high"] for one in ratios)) * 1.12)
    panel.set_xlabel(f"times as long as {ratios[0]['contender']}, median latency and 95 % interval")
    panel.grid(True, axis="x", color=LINE, linewidth=0.6)
    return figure
