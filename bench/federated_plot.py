"""Curves of the federated prompt for docs/learning.md, from bench/results/l2_federated.json and l2_inversion.json.

    python bench/federated_plot.py     writes docs/images/federated-rounds.png and docs/images/federated-inversion.png

The first: accuracy over the rounds, without attackers and with 20 %. The second: how like the node's own features are
to what an attacker makes of the whole change, and of what is sent.
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
WAYS = {"undefended": "whole change, float32", "sent": "what is sent", "class mean": "guess: mean of the class"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", metavar="DIR")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images", metavar="DIR")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    refused = 0
    for result, name, draw in (("federated", "rounds", rounds), ("inversion", "inversion", leaks)):
        try:
            figures = read(arguments.results / f"l2_{result}.json")["figures"]
        except Refusal as refusal:
            print(f"federated_plot.py: {refusal.message}", file=sys.stderr)
            refused = 2
            continue
        with matplotlib.rc_context(PLOT_STYLE):
            draw(figures).savefig(arguments.out / f"federated-{name}.png", dpi=110, metadata={"Software": None})
    return refused


def rounds(figures: dict[str, Any]) -> Figure:
    drawn = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    found = figures["compared"]
    for number, one in enumerate(found["federated"]):
        plotted(left, one, CONTENDERS[0], "ours" if number == 0 else None)
    for colour, (name, one) in zip(CONTENDERS[1:], found["others"].items(), strict=False):
        plotted(left, one, colour, name)
    for axes in (left, right):
        axes.axhline(found["centralised_accuracy"], color=INK, linewidth=0.8, linestyle=":")
        axes.set(xlabel="round", ylim=(0, 1))
    left.set(ylabel="accuracy, held-out pictures", title="100 uneven nodes; dotted: one place")
    for colour, (attack, ways) in zip(CONTENDERS, figures["attacked"].items(), strict=False):
        plotted(right, ways["ours"], colour, f"{attack}: ours")
        plotted(right, ways["bare mean"], colour, f"{attack}: bare mean", linestyle="--")
    right.set_title("20 % of the nodes attack")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7)
    return drawn


def plotted(axes: Any, one: dict[str, Any], colour: str, label: str | None, **more: Any) -> None:
    curve = one["curve"]
    places = np.linspace(one["rounds"] / len(curve), one["rounds"], len(curve))
    axes.plot(places, curve, color=colour, label=label, linewidth=1.2, **more)


def leaks(figures: dict[str, Any]) -> Figure:
    drawn = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, (moment, sizes) in zip(drawn.subplots(1, 2, sharey=True), figures["found"].items(), strict=True):
        places = np.arange(len(sizes))
        for number, (way, label) in enumerate(WAYS.items()):
            heights = [one[way]["cosine"] for one in sizes.values()]
            colour = (CONTENDERS[1], CONTENDERS[0], PALE)[number]
            axes.bar(places + 0.27 * (number - 1), heights, 0.25, color=colour, label=label)
        axes.set_xticks(places, [f"{size} pictures" for size in sizes])
        axes.set(title=moment, ylim=(-0.1, 1))
    drawn.axes[0].set_ylabel("cosine with the node's own features")
    drawn.axes[0].legend(frameon=False, fontsize=7)
    return drawn


if __name__ == "__main__":
    raise SystemExit(main())
