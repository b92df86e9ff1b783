"""Curves of long-tail repair for docs/learning.md, from bench/results/l1_longtail.json.

    python bench/repair_plot.py     writes docs/images/repair-methods.png and docs/images/repair-curve.png

The first: tail accuracy over head accuracy on the new line for every method and seed, and what each forgot. The second:
the loss of every step, and what the guard saw.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from foveola.bench.evidence import read
from foveola.bench.plots import CONTENDERS, INK, PALE, PLOT_STYLE
from foveola.exchange import Refusal

ROOT = Path(__file__).parent.parent
NAMES = {
    "before": "before", "balanced": "ours", "described": "described preset", "fine_tuning": "fine-tuning",
    "kd": "plain distillation", "logit_adjusted": "logit adjustment", "replay": "replay",
}  # fmt: skip
SMOOTHED = 5


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=ROOT / "bench/results/l1_longtail.json", metavar="FILE")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images", metavar="DIR")
    arguments = parser.parse_args(argv)
    try:
        figures = read(arguments.result)["figures"]
    except Refusal as refusal:
        print(f"repair_plot.py: {refusal.message}", file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(PLOT_STYLE):
        for name, drawn in (("repair-methods", methods(figures)), ("repair-curve", curves(figures))):
            drawn.savefig(arguments.out / f"{name}.png", dpi=110, metadata={"Software": None})
    return 0


def colour_of(name: str) -> str:
    others = [one for one in NAMES if one not in ("before", "balanced")]
    return (
        INK
        if name == "before"
        else CONTENDERS[0]
        if name == "balanced"
        else (*CONTENDERS[1:], PALE)[others.index(name)]
    )


def methods(figures: dict[str, Any]) -> Figure:
    """Left: tail over head accuracy. Right: alignment error and points forgotten."""
    drawn = Figure(figsize=(9, 3.8), layout="constrained")
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1.5, 1, 1))
    summary = figures["summary"]
    names = [name for name in NAMES if name in summary]
    for name in names:
        one = summary[name]
        x, y = one["head_accuracy"], one["tail_accuracy"]
        left.scatter(x["seeds"], y["seeds"], s=18, color=colour_of(name), alpha=0.45, linewidths=0)
        left.scatter([x["mean"]], [y["mean"]], s=70, color=colour_of(name), label=NAMES[name])
    left.set(xlabel="head accuracy", ylabel="tail accuracy", title="new line, held-out pictures")
    left.legend(frameon=False, fontsize=8)
    places = np.arange(len(names))[::-1]
    for axes, figure, title in (
        (middle, "alignment_error", "alignment error"), (right, "forgotten_points", "points forgotten, first line")
    ):  # fmt: skip
        axes.barh(places, [summary[name][figure]["mean"] for name in names], color=[colour_of(name) for name in names])
        axes.set_yticks(places, [NAMES[name] for name in names] if axes is middle else [""] * len(names))
        axes.set_title(title)
    return drawn


def curves(figures: dict[str, Any]) -> Figure:
    """The smoothed loss of the first seed, and the guard's score of ours."""
    drawn = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = drawn.subplots(1, 2)
    for name, runs in figures["runs"].items():
        steps, loss = np.array([point[:2] for point in runs[0]["curve"]]).T
        smooth = np.convolve(loss, np.ones(SMOOTHED) / SMOOTHED, "valid")
        left.plot(steps[SMOOTHED - 1 :], smooth, color=colour_of(name), label=NAMES[name])
    left.set(xlabel="step", title=f"loss, mean of {SMOOTHED} steps (not comparable between methods)", yscale="log")
    left.legend(frameon=False, fontsize=8)
    for seed, run in enumerate(figures["runs"].get("balanced", [])):
        seen = [(point[0], point[2]) for point in run["curve"] if len(point) == 3]
        if seen:
            right.plot(
                *zip(*seen, strict=True), marker="o", color=CONTENDERS[seed % len(CONTENDERS)], label=f"seed {seed}"
            )
    right.set(xlabel="step", title="mean accuracy by class on the guard set, ours")
    right.legend(frameon=False, fontsize=8)
    return drawn


if __name__ == "__main__":
    raise SystemExit(main())
