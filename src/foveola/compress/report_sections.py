"""What the report shows of a step besides its figures: plots of what it predicted, measured and decided.

A section is a function from the step's finding and the checkpoint (in whose folder records lie) to HTML.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from foveola.artifact import Checkpoint, Finding
from foveola.compress.precision import RECORD
from foveola.compress.svg import Point, bars, scatter
from foveola.weights.formats import Format, parse_storage

_SHOWN = 12
"""Bars of the layers that come worst."""
_STEPS = 60


def layers_of_awq(finding: Finding, checkpoint: Checkpoint) -> str:
    """Error per layer: predicted on calibration samples against measured on held-out ones, and where it lies."""
    layers: list[dict[str, Any]] = list(finding.options.get("layers", []))
    points = [
        Point(one["predicted"], one["measured"], f"{one['path']}: {one['chosen']}", str(one["format"]))
        for one in layers
    ]
    kept = [Point(one["nearest"], one["measured"], str(one["path"]), str(one["chosen"])) for one in layers]
    return (
        "<h3>Error of every layer's output, relative</h3>"
        + scatter(points, "predicted", "measured on held-out samples", log=True, diagonal=True)
        + "<h3>Round-to-nearest against what was kept</h3>"
        + scatter(kept, "round-to-nearest", "kept", log=True, diagonal=True)
        + "<h3>The layers that lost most</h3>"
        + bars(_worst({one["path"]: one["measured"] for one in layers}), "relative error")
    )


def bits_of_precision(finding: Finding, checkpoint: Checkpoint) -> str:
    """What the choice of bits cost, layer by layer and block by block, and what more or fewer bits would have."""
    record = json.loads((checkpoint.path / RECORD).read_text(encoding="utf-8"))
    layers: dict[str, dict[str, Any]] = record["layers"]
    storages: dict[str, list[dict[str, Any]]] = {}
    for one in layers.values():
        storages.setdefault(one["storage"], []).append(one)
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{len(group)}</td><td>{sum(one['predicted_kl'] for one in group):.4g}</td></tr>"
        for name, group in sorted(storages.items())
    )
    points = [
        Point(one["predicted_kl"], one["relative_output_error"], path, one["storage"]) for path, one in layers.items()
    ]
    parts = [
        f"<table><tr><th>storage</th><th>matrices</th><th>predicted divergence, nats</th></tr>{rows}</table>",
        "<h3>What every layer costs</h3>",
        scatter(points, "divergence it costs, nats", "relative error of the output (measured)", log=True),
        bars(_worst({path: one["predicted_kl"] for path, one in layers.items()}), "predicted divergence, nats"),
    ]
    if all("weights" in one for one in layers.values()):
        parts += ["<h3>More or fewer bits</h3>", _bits_against_cost(record, layers)]
    if record.get("blocks"):
        parts += ["<h3>How the error travels</h3>", _blocks(record["blocks"])]
    return "".join(parts)


def learning_of_tune(finding: Finding, checkpoint: Checkpoint) -> str:
    """How far the answers of the samples were from the whole model's, step after step."""
    losses = [float(one) for one in finding.options.get("losses", [])]
    if len(losses) < 2:
        return ""
    points = [Point(number, loss, f"step {number}: {loss:.3g} nats", "") for number, loss in enumerate(losses, 1)]
    return "<h3>Learning</h3>" + scatter(points, "step", "divergence of the step's samples, nats", log_y=True)


SECTIONS: Mapping[str, Callable[[Finding, Checkpoint], str]] = {
    "compress.awq": layers_of_awq,
    "compress.precision": bits_of_precision,
    "compress.tune": learning_of_tune,
}
"""Step of a finding -> what the page shows of it besides its figures."""


def _worst(values: Mapping[str, float]) -> list[tuple[str, float]]:
    ordered = sorted(values.items(), key=lambda one: -one[1])[:_SHOWN]
    return [(".".join(path.split(".")[-4:]), float(value)) for path, value in ordered]


def _blocks(blocks: Sequence[Mapping[str, Any]]) -> str:
    """The relative error behind every block: certified, expected, measured."""
    points = [
        Point(number, float(one[key]), f"{one['block']}: {one[key]:.3g}", key)
        for number, one in enumerate(blocks, 1)
        for key in ("bound", "expected", "measured")
    ]
    return scatter(points, "block", "relative error of its result", log_y=True)


def _bits_against_cost(record: Mapping[str, Any], layers: Mapping[str, Mapping[str, Any]]) -> str:
    """Average bits against predicted divergence: one format for all, what was chosen, and the hull of all choices."""
    weights = {path: int(one["weights"]) for path, one in layers.items()}
    whole = sum(weights.values())

    def point(chosen: Mapping[str, str], title: str, group: str) -> Point:
        bits = sum(_bits(chosen[path]) * count for path, count in weights.items()) / whole
        cost = sum(float(layers[path]["considered"][chosen[path]]) for path in layers)
        return Point(bits, cost, f"{title}: {bits:.3g} bits, {cost:.3g} nats", group)

    shared = set.intersection(*(set(one["considered"]) for one in layers.values()))
    points = [point(dict.fromkeys(layers, name), f"{name} for all", "one format for all") for name in sorted(shared)]
    points.append(Point(float(record["bits"]), float(record["predicted_kl"]), "as stored", "as stored"))
    hull = [point(chosen, "best", "") for chosen in _hull(layers, weights)]
    return scatter(points, "average bits per weight", "predicted divergence, nats", log_y=True, line=hull)


def _hull(layers: Mapping[str, Mapping[str, Any]], weights: Mapping[str, int]) -> list[dict[str, str]]:
    """Choices that no mixture of others beats: for falling prices of a bit each layer takes what is cheapest."""
    slopes = sorted(
        float(cost) / weights[path] for path, one in layers.items() for cost in one["considered"].values() if cost > 0
    )
    if not slopes:
        return []
    low, high = slopes[0] / 100, slopes[-1] * 100
    found: list[dict[str, str]] = []
    for step in range(_STEPS + 1):
        price = high * (low / high) ** (step / _STEPS)
        chosen = {
            path: min(one["considered"], key=lambda name: one["considered"][name] + price * _bits(name) * weights[path])
            for path, one in layers.items()
        }
        if not found or chosen != found[-1]:
            found.append(chosen)
    return found


def _bits(storage: str) -> int:
    known = parse_storage(storage)
    assert isinstance(known, Format)
    return known.bits
