"""The embedded model at 4 bits in both halves, through the real engine, against itself unrounded and round-to-nearest.

All answer the same questions about held-out pictures; a task's drop is paired by question, with a bootstrap interval.
What needs no samples, or is there for comparison only, is made once; ours (``awq``, then ``tune``) with samples of
every seed's own. Embedding, head and patch kernel have 8 bits. Bytes are those of the checkpoint's tensors against 4
per parameter.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Checkpoint
from foveola.bench.accuracy import Marked, examine
from foveola.bench.calibration import training_samples
from foveola.bench.contender import Setup
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.kept import Kept
from foveola.bench.local import LocalEngine
from foveola.bench.paper import as_items, draw, read_paper
from foveola.bench.stats import median
from foveola.compress.awq import Awq, HalfOptions
from foveola.compress.recipe import Recipe
from foveola.compress.rounding import Round
from foveola.compress.run import compress
from foveola.compress.steps import Step
from foveola.compress.tune import Tune
from foveola.engine.options import usable_cores
from foveola.lower import CompileOptions
from foveola.lower.compile import compile_checkpoint
from foveola.tiny.exam import Question

DROP_POINTS, SMALLER = 0.5, 5.0
OURS = "awq and tune, both halves"
MAX_TOKENS = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    home = Path(__file__).resolve().parents[1] / "models" / "foveola-tiny"
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", default=home)
    parser.add_argument("--data", type=Path, metavar="DIR", required=True, help="the project's data folder")
    parser.add_argument("--group", type=int, metavar="N", default=32)
    parser.add_argument("--samples", type=int, metavar="N", default=64)
    parser.add_argument("--seeds", type=int, metavar="N", default=3)
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps what is done; another run goes on from there")
    parser.add_argument("--questions", type=int, metavar="N", help="at most so many; default: all")
    parser.add_argument("--generated", type=int, metavar="N", default=200, help="generated scenes, and as many labels")


def ways(group: int, *, all_of_them: bool) -> dict[str, tuple[Step, ...]]:
    """Name -> steps: ours, and once what it is compared with."""
    blocks = ("model.visual.blocks.*", "model.visual.merger.*", "model.language_model.layers.*")
    half = HalfOptions(4, group)
    nearest = (Round(blocks, f"int4/{group}"), Round(("*.embed_tokens", "*.patch_embed.proj"), "int8/32"))
    compared: dict[str, tuple[Step, ...]] = {
        "round-to-nearest": nearest,
        "awq, both halves": (Awq(vision=half, decoder=half),),
    }
    return {**(compared if all_of_them else {}), OURS: (Awq(vision=half, decoder=half), Tune())}


def answers(bundle: Path, paper: Sequence[Question]) -> tuple[list[Marked], float]:
    """Marked answers, and the median latency in ms."""
    latencies: list[float] = []
    with LocalEngine(Setup(bundle, usable_cores(), MAX_TOKENS)) as engine:

        def ask(question: Question) -> str:
            (item,) = as_items([question])
            sample = engine.ask(item)
            latencies.append(1e3 * sample.latency_s)
            return sample.text

        marked = examine(paper, ask)
    return marked, median(latencies)


def drops(before: Sequence[Marked], after: Sequence[Marked]) -> dict[str, list[float]]:
    """Task -> points lost, with the 95 % interval of a paired bootstrap over questions."""
    lost: dict[str, list[int]] = {}
    for one, other in zip(before, after, strict=True):
        lost.setdefault(one.question.task, []).append(int(one.right) - int(other.right))
    found = {}
    for task, values in {**lost, "all": [v for each in lost.values() for v in each]}.items():
        array = 100 * np.asarray(values, np.float64)
        drawn = np.random.default_rng(0).integers(0, len(array), (2000, len(array)))
        low, high = np.percentile(array[drawn].mean(1), [2.5, 97.5])
        found[task] = [round(float(v), 2) for v in (array.mean(), low, high)]
    return found


@dataclass
class Whole:
    """The unrounded model, the questions, and its answers to them, once they are needed."""

    source: Checkpoint
    paper: Sequence[Question]
    folder: Path
    tell: Tell

    @cached_property
    def answers(self) -> tuple[list[Marked], float]:
        self.tell("unrounded")
        bundle = compile_checkpoint(self.source.path, self.folder / "whole", CompileOptions.of_precision("fp32"))
        return answers(bundle.path, self.paper)


def one_way(
    arguments: argparse.Namespace, whole: Whole, seed: int, name: str, steps: tuple[Step, ...]
) -> dict[str, Any]:
    """Round in this way with this seed's samples, compile and examine."""
    whole.tell(f"seed {seed}: {name}")
    count = 24 if arguments.quick else arguments.samples
    place = whole.folder / f"{seed}-{name.replace(' ', '-')}"
    samples = training_samples(arguments.data, place / "samples", count, seed=seed)
    made = compress(whole.source.path, Recipe(steps, calibration=samples, seed=seed), place / "checkpoint")
    bundle = compile_checkpoint(made.path, place / "bundle", CompileOptions.of_precision("int8@load"))
    after, latency = answers(bundle.path, whole.paper)
    size = sum(one.bytes for one in bundle.files.values())
    held = sum(info.bytes for info in made.tensors.values())
    point = {**_point(name, held, after, latency), "bundle_bytes": size}
    return {"drops": drops(whole.answers[0], after), "point": point}


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    paper = read_paper(arguments.data, generated=4 if arguments.quick else arguments.generated)
    if arguments.quick or arguments.questions:
        paper = draw(paper, 60 if arguments.quick else arguments.questions)
    source = Checkpoint.open(arguments.checkpoint)
    whole_bytes = 4 * source.parameters
    found: dict[str, list[dict[str, list[float]]]] = {}
    points: list[dict[str, Any]] = []
    kept = Kept(arguments.work, arguments, source.model_hash)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        whole = Whole(source, paper, folder, tell)
        points.append(kept.of("fp32", lambda: _point("fp32", whole_bytes, *whole.answers)))
        for seed in range(1 if arguments.quick else arguments.seeds):
            for name, steps in ways(arguments.group, all_of_them=not seed).items():
                made = kept.of(f"{seed} {name}", partial(one_way, arguments, whole, seed, name, steps))
                found.setdefault(name, []).append(made["drops"])
                points.append(made["point"])
                tell(f"seed {seed}: {name}: {made['drops']['all']} points lost")
    ours = found[OURS]
    worst = max(float(np.mean([seed[task][0] for seed in ours])) for task in ours[0] if task != "all")
    smaller = whole_bytes / min(p["bytes"] for p in points if p["name"] == OURS)
    figures = {
        "model_hash": source.model_hash,
        "questions": len(paper),
        "group": arguments.group,
        "drops_points": found,
        "points": points,
    }
    return figures, [
        Bar("points lost by the task that loses most (mean of the seeds)", worst, DROP_POINTS, at_most=True),
        Bar("times smaller than fp32", smaller, SMALLER),
    ]


def _point(name: str, size: int, marked: Sequence[Marked], latency_ms: float) -> dict[str, Any]:
    share = sum(one.right for one in marked) / len(marked)
    return {"name": name, "bytes": size, "accuracy": round(share, 4), "latency_ms": round(latency_ms, 2)}


SCRIPT = Script("c1", "awq_both_halves", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
