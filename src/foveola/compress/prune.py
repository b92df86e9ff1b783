"""``prune``: whole channels, heads and groups leave both halves, in the tiles of the target chip.

score (gradients per modality, or a search under the coupled regulariser) → how much of each layer (dynamic program
under a cost table) → cut → closed-form repair → short recovery. What is left is an ordinary, smaller model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from foveola.artifact import Checkpoint, Finding
from foveola.compress.coupling import Form, block_means
from foveola.compress.cut import Allocation, Costs, CutLayer, cut, decide, products, unit_weights, utilised
from foveola.compress.example import Example
from foveola.compress.latency import LatencyTable, Shape
from foveola.compress.masks import (
    Scores,
    Search,
    gather_importance,
    gather_moments,
    random_scores,
    search_gates,
    weight_scores,
)
from foveola.compress.recover import Recovery, recover, teach
from foveola.compress.steps import keep_side_files
from foveola.compress.tiles import Tile, chip_of, model_utilisation
from foveola.compress.units import HALVES, UnitGroup, linear, unit_groups
from foveola.exchange import Invalid
from foveola.family import Family
from foveola.family.base import Config
from foveola.weights.skeleton import stored_names
from foveola.weights.widths import WIDTHS, widths_of

Score = Literal["taylor", "fisher", "wanda", "magnitude", "random"]
Tell = Callable[[str, float], None]
_BLOCK = Tile(1, 4, 4)
"""The smallest block that the chips of the description know, of which larger tiles are made."""


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """How to prune.

    share         of the cost of all units that goes
    halves, kinds which units may go
    chip, precision  whose tiles the kept channels fill (``tiles.CHIPS``)
    score         taylor and fisher are ours; wanda, magnitude and random are there to compare with
    block         scores are averaged over so many neighbouring units first; 0 for no averaging
    search_steps  steps of the mask search under the coupled regulariser with ``a`` and ``form``; 0 for none
    allocation    dp: layers compete under one budget; uniform: the same share of each
    cost          weights: what a unit has; latency: measured on this machine (``rows`` per half, and one for decoding)
    repair        closed-form repair of what read the units that went, with ``ridge``
    recover_steps steps of recovery under the whole model's teaching; 0 for none
    """

    share: float = 0.3
    halves: tuple[str, ...] = HALVES
    kinds: tuple[str, ...] = ("channels", "heads")
    chip: str = "cpu-avx2"
    precision: str = "fp32"
    score: Score = "fisher"
    block: int = 0
    search_steps: int = 0
    a: float = 0.3
    form: Form = "spec"
    allocation: Allocation = "dp"
    cost: Literal["weights", "latency"] = "weights"
    rows: Mapping[str, int] | None = None
    repair: bool = True
    ridge: float = 0.01
    recover_steps: int = 0
    recover_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        chip_of(self.chip).tile(self.precision)
        unknown = sorted(set(self.kinds) - {"channels", "heads"})
        if unknown or not self.kinds:
            raise Invalid(
                f"kinds names {repr(unknown[0]) if unknown else 'nothing'}; expected channels, heads or both.",
                field="kinds",
            )
        if not 0 < self.share < 1:
            raise Invalid(f"share is {self.share}; expected a share between 0 and 1, such as 0.3.", field="share")
        for name in ("block", "search_steps", "recover_steps"):
            if getattr(self, name) < 0:
                raise Invalid(f"{name} is {getattr(self, name)}; expected 0 or more.", field=name)
        for name in ("ridge", "recover_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise Invalid(f"{name} is {getattr(self, name)}; expected a number above 0.", field=name)
        if not 0 <= self.a <= 1:
            raise Invalid(f"a is {self.a}; expected a share from 0 to 1, such as 0.3.", field="a")
        for half, rows in (self.rows or {}).items():
            if half not in HALVES or rows < 1:
                raise Invalid(f"rows has {half} = {rows}; expected {' or '.join(HALVES)}, at least 1.", field="rows")

    @property
    def rows_of(self) -> Mapping[str, int]:
        """M of each half's products: patches of a picture, tokens of a prompt."""
        return {"vision": 256, "decoder": 96, **(self.rows or {})}


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning did: per group, and predicted utilisation before and after."""

    layers: tuple[CutLayer, ...]
    figures: Mapping[str, float]
    search: tuple[Mapping[str, float], ...]
    recovery: tuple[float, ...]
    utilisation: Mapping[str, float]
    """Per product, after (modelled)."""


def prune_model(
    model: nn.Module,
    family: Family,
    config: Config,
    examples: Sequence[Example],
    options: PruneOptions,
    tell: Tell = lambda what, share: None,
) -> Pruned:
    """Prune ``model`` in place. Raises ``Invalid`` for a share that the layers do not allow."""
    groups = [g for g in unit_groups(model, family, config, options.halves) if g.kind in options.kinds]
    if any(g.half == "vision" for g in groups) and not any(bool(one.is_vision.any()) for one in examples):
        raise Invalid(
            "no calibration sample has a picture, and the vision tower is to be pruned; give some, or "
            'halves = ["decoder"].',
            field="halves",
        )
    chip = chip_of(options.chip)
    tile, channels = chip.tile(options.precision), chip.channels(options.precision)
    count = len(examples)
    tell("measuring what units are worth", 0.05)
    scores, searched = _scores(model, groups, examples, options, lambda done: tell("gradients", 0.3 * done / count))
    costs = _costs(model, groups, channels, options)
    blocks = model_utilisation(products(model, groups, options.rows_of), _BLOCK)
    keep = decide(model, groups, scores, options.share, channels, costs, options.allocation)
    before = _weights(model, groups), utilised(model, groups, options.rows_of, tile)
    tell("moments of what layers read", 0.35)
    moments = gather_moments(model, groups, examples) if options.repair else None
    targets = teach(model, examples) if options.recover_steps else []
    tell("cutting", 0.5)
    layers = cut(model, family, config, groups, keep, moments, ridge=options.ridge)
    # units are other ones now: as many as are left
    left = [g for g in unit_groups(model, family, config, options.halves) if g.kind in options.kinds]
    losses: list[float] = []
    if options.recover_steps:
        how = Recovery(options.recover_steps, rate=options.recover_rate, seed=options.seed)
        steps = options.recover_steps

        def told(done: int, loss: float) -> None:
            tell(f"recovery, loss {loss:.3f}", 0.5 + 0.5 * done / steps)

        losses = recover(model, family, examples, targets, how, told)
    after = _weights(model, left), utilised(model, left, options.rows_of, tile)
    figures = {
        "unit_weights_before": before[0],
        "unit_weights_after": after[0],
        "utilisation_before": before[1].whole,
        "utilisation_after": after[1].whole,
        "channel_utilisation_before": before[1].channels,
        "channel_utilisation_after": after[1].channels,
        "block_utilisation_before": blocks.channels,
        "block_utilisation_after": model_utilisation(products(model, left, options.rows_of), _BLOCK).channels,
    }
    return Pruned(tuple(layers), figures, tuple(searched), tuple(losses), after[1].layers)


def _scores(
    model: nn.Module,
    groups: Sequence[UnitGroup],
    examples: Sequence[Example],
    options: PruneOptions,
    told: Callable[[int], None],
) -> tuple[Scores, list[dict[str, float]]]:
    searched: list[dict[str, float]] = []
    if options.score == "random":
        scores = random_scores(groups, options.seed)
    elif options.score in ("magnitude", "wanda"):
        moments = gather_moments(model, groups, examples) if options.score == "wanda" else None
        scores = weight_scores(model, groups, moments)
    else:
        importance = gather_importance(model, groups, examples, told)
        scores = importance.taylor() if options.score == "taylor" else importance.fisher()
    if options.block > 1:
        scores = {name: block_means(score, options.block) for name, score in scores.items()}
    if options.search_steps:
        unit_costs = {group.name: float(unit_weights(model, group)) for group in groups}
        search = Search(options.search_steps, options.share, options.a, options.form)
        gates, searched = search_gates(model, groups, examples, unit_costs, search)
        scores = {name: score * gates[name] for name, score in scores.items()}
    return scores, searched


def _weights(model: nn.Module, groups: Sequence[UnitGroup]) -> float:
    return float(sum(unit_weights(model, group) * group.count for group in groups))


def _costs(model: nn.Module, groups: Sequence[UnitGroup], channels: int, options: PruneOptions) -> dict[str, Costs]:
    weights = {group.name: float(unit_weights(model, group)) for group in groups}
    if options.cost == "weights":
        return {name: Costs(each) for name, each in weights.items()}
    table = LatencyTable()
    found = {}
    for group in groups:
        tile = group.units_per_tile(channels)
        counts = sorted({*range(tile, group.count, tile), group.count})
        times = {}
        for count in counts:
            shapes = _shapes(model, group, count, options.rows_of[group.half])
            times[count] = sum(table.measure(shapes).of(shape) for shape in shapes)
        found[group.name] = Costs(weights[group.name], times)
    return found


def _shapes(model: nn.Module, group: UnitGroup, units: int, rows: int) -> list[Shape]:
    """The products of a group with ``units`` left: producers side by side, as they are compiled, and the consumer."""
    produced = sum(spans.shape[1] for spans in group.producers.values()) * units
    first = linear(model, next(iter(group.producers)))
    consumer = linear(model, group.consumer)
    return [
        Shape(rows, first.in_features, produced),
        Shape(rows, group.width * units, consumer.out_features),
    ]


def write_narrowed(source: Checkpoint, model: nn.Module, usual: Mapping[str, tuple[int, int]], folder: Path) -> None:
    """Write ``model`` as a checkpoint into ``folder``: weights in the source's dtypes, config.json with the widths."""
    names = stored_names(model, source)
    state = model.state_dict()
    dtypes = {"F16": torch.float16, "BF16": torch.bfloat16}
    tensors: dict[str, Tensor] = {
        name: state[name].to(dtypes.get(source.tensors[stored].dtype, torch.float32)).contiguous()
        for name, stored in names.items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    entries: dict[str, Any] = {**source.config, WIDTHS: widths_of(model, usual, source.config)}
    (folder / "config.json").write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    keep_side_files(source, folder)


def finding_of(pruned: Pruned, options: PruneOptions, seconds: float) -> Finding:
    """The evidence of one pruning, for the lineage. Utilisation in it is modelled, errors are measured."""
    figures = pruned.figures
    gone = 1 - figures["unit_weights_after"] / max(1.0, figures["unit_weights_before"])
    before = {key.removesuffix("_before"): round(v, 6) for key, v in figures.items() if key.endswith("_before")}
    after: dict[str, float | int | str] = {
        key.removesuffix("_after"): round(v, 6) for key, v in figures.items() if key.endswith("_after")
    }
    worst = max((layer.error_repaired for layer in pruned.layers), default=0.0)
    plain = max((layer.error_cut for layer in pruned.layers), default=0.0)
    return Finding(
        step="compress.prune",
        changed=f"{gone:.1%} of the units' weights out of {len(pruned.layers)} groups, in tiles of {options.chip}",
        before={**before, "worst_layer_error": round(plain, 6)},
        after={**after, "worst_layer_error": round(worst, 6)},
        seconds=seconds,
        options={
            "kept": {layer.name: [layer.before, layer.after] for layer in pruned.layers},
            "utilisation_per_product": {name: round(value, 4) for name, value in pruned.utilisation.items()},
            "recovery_loss": [round(x, 5) for x in (pruned.recovery[:1] + pruned.recovery[-1:])],
        },
    )
