"""Pruning both halves of the embedded model in tiles: answers lost, before and after recovery, against magnitude, Wanda
and random, and the real latency of the compiled bundles.

Ours lets layers compete for the weights of their units, or with ``--cost latency`` for the time of their products; the
rivals are used as they are known: the same share of every layer, without repair. All recover alike. Answers are marked
on questions of the examination, about held-out pictures; greedy answers are right exactly when every token of the right
answer is the likeliest after those before it.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveola.artifact import Checkpoint, write_checkpoint
from foveola.bench.calibration import training_samples
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.kept import Kept
from foveola.bench.paired import side_by_side
from foveola.bench.paper import as_items, draw, read_paper
from foveola.compress.example import Example, predicted
from foveola.compress.prune import Pruned, PruneOptions, finding_of, prune_model, write_narrowed
from foveola.compress.recover import Recovery, Target, recover, teach
from foveola.compress.samples import read_examples
from foveola.family import Family, family_of
from foveola.lower.compile import compile_checkpoint
from foveola.lower.options import CompileOptions
from foveola.tiny.exam import Question
from foveola.weights.loading import load
from foveola.weights.widths import sizes_of

LATENCY, DROP = 1.25, 1.0
OURS = "fisher, program, repair"
METHODS = {
    OURS: {"score": "fisher"},
    "wanda": {"score": "wanda", "allocation": "uniform", "repair": False},
    "magnitude": {"score": "magnitude", "allocation": "uniform", "repair": False},
    "random": {"score": "random", "allocation": "uniform", "repair": False},
}
PARTS = {
    "taylor, program, repair": {"score": "taylor"},
    "search (spec form), program, repair": {"score": "fisher", "search_steps": 24, "form": "spec"},
    "search (normalised form), program, repair": {"score": "fisher", "search_steps": 24, "form": "normalised"},
    "fisher, program": {"score": "fisher", "repair": False},
    "fisher, uniform, repair": {"score": "fisher", "allocation": "uniform"},
}
"""What of our method does how much: on the first seed, with ``--parts``."""
RECOVERED = (OURS, "wanda", "magnitude")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True, help="the embedded model's checkpoint")
    parser.add_argument("--data", type=Path, metavar="DIR", required=True, help="the project's data folder")
    parser.add_argument("--share", type=float, metavar="S", default=0.3, help="of the units' weights that goes")
    parser.add_argument(
        "--cost", choices=("weights", "latency"), default="weights", help="what ours lets layers compete for"
    )
    parser.add_argument("--seeds", type=int, metavar="N", default=3)
    parser.add_argument("--recovered-seeds", type=int, metavar="N", default=1, help="of these, how many recover")
    parser.add_argument("--calibration", type=int, metavar="N", default=96, help="samples that units are scored on")
    parser.add_argument("--lessons", type=int, metavar="N", default=600, help="samples that recovery learns from")
    parser.add_argument("--steps", type=int, metavar="N", default=300, help="of recovery, 4 samples each")
    parser.add_argument("--questions", type=int, metavar="N", default=240)
    parser.add_argument("--asked", type=int, metavar="N", default=60, help="questions that latency is measured on")
    parser.add_argument("--parts", action="store_true", help="also our method in parts, and the search over masks")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps what is done; another run goes on from there")
    parser.add_argument("--precision", default="int8@load", help="of the compiled bundles")


@dataclass(frozen=True, slots=True)
class Exam:
    """Questions as examples, and what the whole model says to them."""

    examples: list[Example]
    whole: list[Tensor]

    @torch.no_grad()
    def mark(self, model: nn.Module) -> dict[str, float]:
        """Share of right answers, and KL to the whole model per token."""
        right, total, tokens = [], 0.0, 0
        for example, before in zip(self.examples, self.whole, strict=True):
            logits, targets = predicted(model, example)
            right.append(bool((logits.argmax(-1) == targets).all()))
            after = logits.log_softmax(-1)
            total += float((before.exp() * (before - after)).sum())
            tokens += len(targets)
        return {"right": float(np.mean(right)), "kl": total / tokens}


@torch.no_grad()
def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    if arguments.quick:
        arguments.calibration, arguments.lessons, arguments.steps, arguments.questions = 6, 8, 2, 8
        arguments.seeds, arguments.asked = 1, 3
    source = Checkpoint.open(arguments.checkpoint)
    family = family_of(source.config)
    model = load(source, family)
    paper = asked(arguments.data, arguments.questions)
    exam_examples = as_examples(paper, source, family)
    exam = Exam(exam_examples, [predicted(model, one)[0].log_softmax(-1) for one in exam_examples])
    kept = Kept(arguments.work, arguments, source.model_hash)
    whole = kept.of("whole", lambda: exam.mark(model))
    tell(f"whole model: {whole['right']:.1%} right of {len(paper)}")
    rows, recovered, latency = [], [], None
    for seed in range(arguments.seeds):
        sitting = Sitting(arguments, source, family, model, exam, seed)
        for name, settings in (METHODS | (PARTS if arguments.parts and seed == 0 else {})).items():
            options = PruneOptions(share=arguments.share, seed=seed, cost=arguments.cost, **settings)  # type: ignore[arg-type]
            found = kept.of(f"{seed} {name}", partial(sitting.one, name, options, paper, tell))
            rows.append({"method": name, "seed": seed, **found["pruned"]})
            tell(f"seed {seed}: {name}: {rows[-1]['right']:.1%} right, KL {rows[-1]['kl']:.3g}")
            if "recovered" in found:
                recovered.append({"method": name, "seed": seed, **found["recovered"]})
                tell(f"seed {seed}: {name} recovered: {recovered[-1]['right']:.1%} right")
            latency = latency or found.get("latency")
    assert latency is not None
    figures = {
        "model": source.name,
        "share": arguments.share,
        "questions": len(paper),
        "whole": whole,
        "pruned": rows,
        "recovered": recovered,
        "latency": latency,
    }
    return figures, bars_of(figures)


@dataclass
class Sitting:
    """What all methods of one seed share."""

    arguments: argparse.Namespace
    source: Checkpoint
    family: Family
    model: nn.Module
    exam: Exam
    seed: int

    @cached_property
    def calibration(self) -> list[Example]:
        return samples(self.arguments, self.source, self.family, self.arguments.calibration, self.seed)

    @cached_property
    def lessons(self) -> list[Example]:
        return samples(self.arguments, self.source, self.family, self.arguments.lessons, 1000 + self.seed)

    @cached_property
    def targets(self) -> list[Target]:
        return teach(self.model, self.lessons)

    def one(self, name: str, options: PruneOptions, paper: Sequence[Question], tell: Tell) -> dict[str, Any]:
        """A method: marks before and after recovery; of ours, on the first seed, the latency, too."""
        small, pruned = prune(self.model, self.family, self.source, self.calibration, options)
        found: dict[str, Any] = {"pruned": {**self.exam.mark(small), **dict(pruned.figures)}}
        if name == OURS and self.seed == 0:
            found["latency"] = compare(
                self.source, self.family, self.model, small, pruned, options, paper, self.arguments, tell
            )
        if name in RECOVERED and self.seed < self.arguments.recovered_seeds:
            found["recovered"] = teach_again(small, self.family, self.lessons, self.targets, self.exam, self.arguments)
        return found


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    after = {name: [one["right"] for one in figures["recovered"] if one["method"] == name] for name in RECOVERED}
    rivals = max(float(np.mean(after[name])) for name in RECOVERED[1:])
    ours = float(np.mean(after[OURS]))
    kept = next(row for row in figures["pruned"] if row["method"] == OURS)
    ratio = figures["latency"]["ratio"]["value"]
    gone = 1 - kept["unit_weights_after"] / kept["unit_weights_before"]
    return [
        Bar("share of the units' weights taken out", gone, figures["share"] - 1e-9),
        Bar("whole bundle takes so many times as long (median, bytes to answer)", ratio, LATENCY),
        Bar("points lost after recovery", 100 * (figures["whole"]["right"] - ours), DROP, at_most=True),
        Bar("points above the better of magnitude and Wanda, recovered alike", 100 * (ours - rivals), 0.0),
        Bar("predicted channel utilisation", kept["channel_utilisation_after"], 0.924),
    ]


def asked(data: Path, count: int) -> list[Question]:
    """Examination questions whose answer must match exactly, in trained wordings of both languages."""
    paper = [q for q in read_paper(data, generated=24) if q.task != "box" and q.wording == "train"]
    return draw(paper, count)


def as_examples(paper: Sequence[Question], source: Checkpoint, family: Family) -> list[Example]:
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number, question in enumerate(paper):
            (Path(folder) / f"{number}.image").write_bytes(question.image)
            lines.append(json.dumps({"prompt": question.text, "answer": question.expected, "image": f"{number}.image"}))
        path = Path(folder) / "samples.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        return read_examples(path, source, family)


def samples(arguments: argparse.Namespace, source: Checkpoint, family: Family, count: int, seed: int) -> list[Example]:
    with tempfile.TemporaryDirectory() as folder:
        return read_examples(training_samples(arguments.data, Path(folder), count, seed=seed), source, family)


def prune(
    model: nn.Module, family: Family, source: Checkpoint, calibration: list[Example], options: PruneOptions
) -> tuple[nn.Module, Pruned]:
    small = copy.deepcopy(model)
    return small, prune_model(small, family, source.config, calibration, options)


def teach_again(
    small: nn.Module,
    family: Family,
    lessons: list[Example],
    targets: list[Target],
    exam: Exam,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    start = time.process_time()
    losses = recover(small, family, lessons, targets, Recovery(arguments.steps))
    return {
        **exam.mark(small),
        "loss": [round(float(np.mean(losses[:10])), 4), round(float(np.mean(losses[-10:])), 4)],
        "cpu_s": round(time.process_time() - start, 1),
    }


def compare(
    source: Checkpoint,
    family: Family,
    model: nn.Module,
    small: nn.Module,
    pruned: Pruned,
    options: PruneOptions,
    paper: Sequence[Question],
    arguments: argparse.Namespace,
    tell: Tell,
) -> dict[str, Any]:
    """Compile both and ask both the same questions in turn, on one thread."""
    usual = sizes_of(model)
    with tempfile.TemporaryDirectory() as folder:
        made = write_checkpoint(
            Path(folder, "small"),
            name="small",
            files=lambda out: write_narrowed(source, small, usual, out),
            lineage=(finding_of(pruned, replace(options, recover_steps=arguments.steps), 0.0),),
        )
        compiled = CompileOptions.of_precision(arguments.precision)
        bundles = []
        for name, path in (("whole", source.path), ("small", made.path)):
            tell(f"compiling the {name} model")
            bundles.append(compile_checkpoint(path, Path(folder, f"{name}-bundle"), compiled, name=name))
        items = as_items(draw(list(paper), arguments.asked, seed=1))
        return side_by_side(bundles, items, tell)


SCRIPT = Script("c2", "prune", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
