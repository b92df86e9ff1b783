"""Bits per layer: does the predicted cost rank mixed assignments as the measured divergence does, and is the choice
better than uniform bits and than NNCF's rule at 3.0 bits on average?

All assignments round to nearest over the same groups of 64 and the same ranges, searched by what they cost each block
of weights (``compress/clip.py``), so that only the choice of bits differs. Ours is the program over the geometric mean
of two costs, as the step ``precision`` has it. Divergence is KL to the unrounded model on held-out data. NNCF's rule is
written down here from its documentation (layers sorted by a metric, the least sensitive ones up to a ratio of the
weights get the fewer bits), over 2 and 4 bits at a ratio of one half, because NNCF itself knows 4 and 8 bits only.
Uniform 3 bits are a reference that no kernel here can multiply.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from foveola.artifact import Checkpoint
from foveola.bench.calibration import documentation_texts, training_samples
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.kept import Kept
from foveola.compress.bits import Limits, Option, assign
from foveola.compress.clip import search_clip
from foveola.compress.example import Example, predicted
from foveola.compress.interplay import Interplay, measure_interplay
from foveola.compress.precision import answers_of, ties_of
from foveola.compress.samples import read_examples
from foveola.compress.sensitivity import Sensitivity, measure, relative_weight_error, tried_cost
from foveola.family import Family, family_of
from foveola.weights.loading import load
from foveola.weights.packed import grid_of, in_blocks

BITS, BLOCK, AVERAGE = (2, 4, 8), 64, 3.0
SPEARMAN = 0.9
UNIFORM = int(AVERAGE)
BOTH, FISHER, ALONE, TRIED = "both", "fisher", "interplay, each alone", "fisher, the fewest bits tried"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True, help="text model or the embedded one")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the project's data folder, for a model that sees")
    parser.add_argument("--seeds", type=int, metavar="N", default=3)
    parser.add_argument("--assignments", type=int, metavar="N", default=24, help="random ones per seed")
    parser.add_argument("--calibration", type=int, metavar="N", default=48, help="samples")
    parser.add_argument("--held-out", type=int, metavar="N", default=48, help="samples that divergence is measured on")
    parser.add_argument("--trials", type=int, metavar="N", default=0, help="samples that 2 bits are tried on, too")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps finished seeds; another run goes on from there")
    parser.add_argument("--longest", type=int, metavar="N", default=128, help="tokens of a text")


def rounded(weight: Tensor, bits: int, moments: Tensor) -> Tensor:
    """To the nearest of ``bits`` bits in groups, over searched ranges, as a matrix again."""
    blocks = in_blocks(weight, BLOCK)
    grid = grid_of(blocks, bits, search_clip(weight, moments, bits, BLOCK))
    return grid.values(grid.nearest(blocks)).flatten(1)[:, : weight.shape[1]]


@dataclass
class Subject:
    """A model, its layers that are rounded, and examples with what the unrounded one says to them.

    ``ways`` holds the rounded weights of (path, bits), once they are known.
    """

    model: nn.Module
    family: Family
    exact: dict[str, Tensor]
    examples: list[Example]
    ways: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = [predicted(self.model, one)[0].log_softmax(-1) for one in self.examples]

    def divergence(self, bits: Mapping[str, int]) -> float:
        """KL per predicted token when every layer has these bits."""
        for path, number in bits.items():
            self.model.get_submodule(path).weight.copy_(self.ways[path, number])  # type: ignore[operator]
        total, tokens = 0.0, 0
        for example, before in zip(self.examples, self.whole, strict=True):
            after = predicted(self.model, example)[0].log_softmax(-1)
            total += float((before.exp() * (before - after)).sum())
            tokens += len(after)
        for path in bits:
            self.model.get_submodule(path).weight.copy_(self.exact[path])  # type: ignore[operator]
        return total / tokens


def examples(
    arguments: argparse.Namespace, checkpoint: Checkpoint, count: int, seed: int, *, held_out: bool
) -> list[Example]:
    family = family_of(checkpoint.config)
    with tempfile.TemporaryDirectory() as folder:
        if family.parts.vision:
            # a seed of its own: other pictures, other questions
            path = training_samples(arguments.data, Path(folder), count, seed=seed + 1000 * held_out)
        else:
            path = documentation_texts(Path(folder), count, seed=seed, held_out=held_out)
        return read_examples(path, checkpoint, family, longest=arguments.longest)


@torch.no_grad()
def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    checkpoint = Checkpoint.open(arguments.checkpoint)
    seeds = 1 if arguments.quick else arguments.seeds
    counts = (3, 3, 4) if arguments.quick else (arguments.calibration, arguments.held_out, arguments.assignments)
    family = family_of(checkpoint.config)
    model = load(checkpoint, family)
    blocks = tuple(f"{p}." for p in (family.parts.vision, family.parts.decoder) if p)
    paths = [p for p, m in model.named_modules() if isinstance(m, nn.Linear) and p.startswith(blocks)]
    exact = {path: model.get_submodule(path).weight.clone() for path in paths}  # type: ignore[operator]
    held_out = examples(arguments, checkpoint, counts[1], 0, held_out=True)
    subject = Subject(model, family, exact, held_out)
    kept = Kept(arguments.work, arguments, checkpoint.model_hash)
    trials = 2 if arguments.quick else arguments.trials

    def measured(seed: int) -> dict[str, Any]:
        calibration = examples(arguments, checkpoint, counts[0], seed, held_out=False)
        return one_seed(subject, calibration, trials, counts[2], seed, tell)

    found = [kept.of(f"seed {seed}", partial(measured, seed)) for seed in range(seeds)]
    figures = {
        "model": checkpoint.name,
        "layers": len(paths),
        "weights": sum(w.numel() for w in exact.values()),
        "group": BLOCK,
        "average_bits": AVERAGE,
        "seeds": found,
    }
    evens = [one["kl"]["uniform"] / one["kl"]["ours"] for one in found]
    rules = [min(v for name, v in one["kl"].items() if name.startswith("nncf")) / one["kl"]["ours"] for one in found]
    bars = [
        Bar(
            "Spearman of predicted and measured divergence (least of the seeds)",
            min(one["spearman"][BOTH] for one in found),
            SPEARMAN,
        ),
        Bar("uniform 3 bits has so many times our divergence (least)", min(evens), 1.0),
        Bar("the best of NNCF's metrics has so many times our divergence (least)", min(rules), 1.0),
    ]
    return figures, bars


def one_seed(
    subject: Subject, calibration: list[Example], trials: int, count: int, seed: int, tell: Tell
) -> dict[str, Any]:
    tell(f"seed {seed}: sensitivities")
    paths = list(subject.exact)
    known = measure(subject.model, paths, answers_of(subject.model, calibration), seed=seed)
    subject.ways = {(p, b): rounded(subject.exact[p], b, known[p].gram) for p in paths for b in (*BITS, UNIFORM)}
    errors = {(path, bits): weight for (path, bits), weight in subject.ways.items() if bits in BITS}
    costs = {
        FISHER: {key: known[key[0]].cost(subject.exact[key[0]], w) for key, w in errors.items()},
        "weight norm": {key: relative_weight_error(subject.exact[key[0]], w) for key, w in errors.items()},
        "output error": {key: known[key[0]].relative_error(subject.exact[key[0]], w) ** 2 for key, w in errors.items()},
    }
    if trials:
        tell(f"seed {seed}: every layer alone in {min(BITS)} bits")
        samples = answers_of(subject.model, calibration[:trials])
        whole = [one().log_softmax(-1) for one in samples]
        costs[TRIED] = {
            key: tried_cost(subject.model, key[0], weight, samples, whole)
            if key[1] == min(BITS)
            else costs[FISHER][key]
            for key, weight in errors.items()
        }
    tell(f"seed {seed}: how layers' errors meet")
    moved = {(p, str(b)): w - subject.exact[p] for (p, b), w in errors.items()}
    del errors
    together = measure_interplay(subject.model, moved, answers_of(subject.model, calibration), seed=seed)
    del moved
    costs[ALONE] = {(p, int(b)): cost for (p, b), cost in together.alone().items()}
    costs[BOTH] = {key: (cost * costs[ALONE][key]) ** 0.5 for key, cost in costs[FISHER].items()}
    played = {"interplay": together}
    spearman = ranks(subject, costs, played, count, seed, tell)
    kl = {}
    for name, bits in choices(subject, known, costs, seed).items():
        kl[name] = subject.divergence(bits)
        tell(f"seed {seed}: {name} at {AVERAGE:g} bits: {kl[name]:.4f}")
    return {"seed": seed, "spearman": spearman, "kl": kl}


def options_under(cost: Mapping[tuple[str, int], float], sizes: Mapping[str, int]) -> dict[str, list[Option]]:
    return {p: [Option(str(b), cost[p, b], sizes[p] * b / 8, b) for b in BITS] for p in sizes}


def ranks(
    subject: Subject,
    costs: Mapping[str, Mapping[tuple[str, int], float]],
    played: Mapping[str, Interplay],
    count: int,
    seed: int,
    tell: Tell,
) -> dict[str, float]:
    """Spearman's correlation of each predicted cost with the measured divergence over random assignments."""
    rng = np.random.default_rng(seed)
    paths = list(subject.exact)
    measured: list[float] = []
    predictions: dict[str, list[float]] = {name: [] for name in (*costs, *played)}
    for number in range(count):
        shares = rng.dirichlet((1.0, 2.0, 2.0))  # some assignments have many layers of few bits, some hardly any
        bits = {path: int(rng.choice(BITS, p=shares)) for path in paths}
        measured.append(subject.divergence(bits))
        for name, cost in costs.items():
            predictions[name].append(sum(cost[path, b] for path, b in bits.items()))
        for name, together in played.items():
            predictions[name].append(together.cost({path: str(b) for path, b in bits.items()}))
        tell(f"seed {seed}: assignment {number + 1} of {count}, KL {measured[-1]:.3g}")
    return {name: float(spearmanr(values, measured)[0]) for name, values in predictions.items()}


def choices(
    subject: Subject,
    known: Mapping[str, Sensitivity],
    costs: Mapping[str, Mapping[tuple[str, int], float]],
    seed: int,
) -> dict[str, dict[str, int]]:
    """Assignments of ``AVERAGE`` bits: ours under each cost, NNCF's rule under its metrics, and a random one."""
    sizes = {path: weight.numel() for path, weight in subject.exact.items()}
    ties = ties_of(subject.family, list(sizes))
    found = {}
    for name, cost in costs.items():
        solved = assign(options_under(cost, sizes), Limits(bits=AVERAGE), weights=sizes, ties=ties)
        found["ours" if name == BOTH else f"program over {name}"] = {p: int(b) for p, b in solved.storage.items()}
    for metric, sensitivities in nncf_metrics(subject, known).items():
        found[f"nncf {metric}"] = by_ratio(sensitivities, sizes)
    found["uniform"] = dict.fromkeys(sizes, UNIFORM)
    order = np.random.default_rng(seed).permutation(len(sizes))
    found["random halves"] = by_ratio({p: float(order[i]) for i, p in enumerate(sizes)}, sizes)
    return found


def nncf_metrics(subject: Subject, known: Mapping[str, Sensitivity]) -> dict[str, dict[str, float]]:
    """The metrics of NNCF's mixed precision that can be told from its documentation."""
    exact = subject.exact
    noise = {path: float((weight - subject.ways[path, 8]).square().sum()) for path, weight in exact.items()}
    inputs = {path: float(one.gram.diagonal().mean()) for path, one in known.items()}
    return {
        "weight quantisation error": {path: one / exact[path].numel() for path, one in noise.items()},
        "hessian input activation": {path: noise[path] * inputs[path] for path in exact},
        "mean activation magnitude": inputs,
    }


def by_ratio(sensitivity: Mapping[str, float], sizes: Mapping[str, int]) -> dict[str, int]:
    """2 bits for the least sensitive layers, up to half of the weights; 4 for the others."""
    bits = dict.fromkeys(sizes, 4)
    room = sum(sizes.values()) / 2
    for path in sorted(sizes, key=lambda p: sensitivity[p]):
        if sizes[path] > room:
            break
        bits[path], room = 2, room - sizes[path]
    return bits


SCRIPT = Script("c4", "bits", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
