"""Four bits on a real language model: how far the answers move, against round-to-nearest and llm-compressor's AWQ.

The matrices of all blocks go to 4 bits in groups, the rest stays whole, so that every way spends the same bytes.
Ours is ``awq``, and then ``tune``, which leaves codes and bytes as they are; what the first gives alone is told, too.
Divergence is KL to the unrounded model per token, on passages of the held-out topics of Python's reference manual;
calibration is on passages of the others. Every seed draws other passages. Intervals are bootstrapped over passages.
With ``--work DIR`` what was measured of a seed and way stays there, and a run that was interrupted goes on from it.

The weights must be whole numbers' own: a model that was stored in blocks of 32 by 4 bits (as in a Q4_1 GGUF) lies on
that grid already, and groups of 32 would find it again. Take another group for such a model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveola.bench.llmcompressor_awq as rival
from foveola.artifact import Checkpoint
from foveola.bench.calibration import documentation_texts
from foveola.bench.evidence import Bar, Script, Tell, write
from foveola.compress.awq import Awq, HalfOptions
from foveola.compress.example import predicted
from foveola.compress.recipe import Recipe
from foveola.compress.rounding import Round
from foveola.compress.run import compress
from foveola.compress.samples import read_examples
from foveola.compress.steps import Step
from foveola.compress.tune import Tune
from foveola.exchange import Unavailable
from foveola.family import family_of
from foveola.weights.loading import load

RIVAL_BAR, NEAREST_BAR = 0.7, 0.4
OURS, LAYERS, NEAREST = "ours", "ours, before tune", "round-to-nearest"
RIVAL = "llm-compressor AWQ"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True, help="a text model")
    parser.add_argument(
        "--llmcompressor", metavar="PYTHON", help="the interpreter of its environment; without: left out"
    )
    parser.add_argument("--rival-seeds", type=int, metavar="N", default=3, help="of these, how many it calibrates on")
    parser.add_argument("--group", type=int, metavar="N", default=128)
    parser.add_argument("--seeds", type=int, metavar="N", default=3)
    parser.add_argument("--samples", type=int, metavar="N", default=128, help="passages to calibrate on")
    parser.add_argument("--held-out", type=int, metavar="N", default=64, help="passages to measure on")
    parser.add_argument("--longest", type=int, metavar="N", default=256, help="tokens of a passage")
    parser.add_argument("--parts", action="store_true", help="also our method in parts, on the first seed")
    parser.add_argument("--passes", type=int, metavar="N", default=Tune().passes, help="of tune over the samples")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps what is done; another run goes on from there")


def ways(group: int, *, parts: bool) -> dict[str, Step]:
    """What is compared, all at the same bytes."""

    def awq(power: float = 0.5, **off: bool) -> Awq:
        return Awq(decoder=HalfOptions(4, group, **off), embedding="keep", head="keep", power=power)  # type: ignore[arg-type]

    found: dict[str, Step] = {NEAREST: Round(("model.layers.*",), f"int4/{group}"), LAYERS: awq()}
    if parts:
        found |= {
            "scales": awq(clip=False, gptq=False),
            "scales, clip": awq(gptq=False),
            "gptq": awq(scales=False, clip=False),
            "ours, every token alike": awq(power=0.0),
        }
    return found


def divergences(checkpoint: Path, whole: Sequence[torch.Tensor], examples: Sequence[Any]) -> list[float]:
    """KL per token of every passage."""
    opened = Checkpoint.open(checkpoint)
    model = load(opened, family_of(opened.config))
    found = []
    with torch.no_grad():
        for example, before in zip(examples, whole, strict=True):
            after = predicted(model, example)[0].log_softmax(-1)
            found.append(float((before.exp() * (before - after)).sum(-1).mean()))
    return found


def ratio(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Ours against theirs, mean over passages, with the 95 % interval of a paired bootstrap."""
    pairs = np.stack([np.asarray(ours), np.asarray(others)])
    drawn = np.random.default_rng(0).integers(0, pairs.shape[1], (4000, pairs.shape[1]))
    above, below = pairs[:, drawn].mean(2)
    low, high = np.percentile(above / below, [2.5, 97.5])
    return [round(float(v), 4) for v in (pairs[0].mean() / pairs[1].mean(), low, high)]


@dataclass(frozen=True, slots=True)
class Seed:
    """The passages of one seed, and where what is made of them lies."""

    arguments: argparse.Namespace
    number: int
    folder: Path
    samples: Path

    def ours(self, step: Step, name: str) -> Path:
        out = self.folder / name.replace(" ", "-")
        recipe = Recipe((step,), calibration=self.samples, seed=self.number)
        return compress(self.arguments.checkpoint, recipe, out, replace=True).path

    def tuned(self) -> Path:
        """What learnt besides, from what ``LAYERS`` left."""
        layers, out = self.folder / LAYERS.replace(" ", "-"), self.folder / OURS
        if not layers.is_dir():
            self.ours(ways(self.arguments.group, parts=False)[LAYERS], LAYERS)
        step = Tune(passes=self.arguments.passes, longest=self.arguments.longest)
        recipe = Recipe((step,), calibration=self.samples, seed=self.number)
        whole = Checkpoint.open(self.arguments.checkpoint)
        return compress(layers, recipe, out, replace=True, origin=whole).path

    def rival(self) -> Path:
        """llm-compressor's, on the same tokens."""
        arguments = self.arguments
        source = Checkpoint.open(arguments.checkpoint)
        examples = read_examples(self.samples, source, family_of(source.config), longest=arguments.longest)
        tokens, out = self.folder / "tokens.json", self.folder / "llm-compressor"
        tokens.write_text(json.dumps([one.inputs["input_ids"][0].tolist() for one in examples]))
        given = [str(arguments.checkpoint), str(tokens), str(out), str(arguments.group)]
        done = subprocess.run([arguments.llmcompressor, rival.__file__, *given], capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"llm-compressor failed: {done.stderr.strip().splitlines()[-1:]}")
        return out


def measured(arguments: argparse.Namespace, seed: int, work: Path, tell: Tell) -> dict[str, dict[str, Any]]:
    """Way -> KL per token of every passage, and the bytes of its weights."""
    source = Checkpoint.open(arguments.checkpoint)
    counts = (16, 4) if arguments.quick else (arguments.samples, arguments.held_out)
    folder = work / f"{arguments.group}-{counts[0]}-{counts[1]}-{arguments.longest}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    one = Seed(arguments, seed, folder, documentation_texts(folder, counts[0], seed=seed))
    makers: dict[str, Callable[[], Path]] = {
        name: partial(one.ours, step, name)
        for name, step in ways(arguments.group, parts=arguments.parts and not seed).items()
    }
    makers[OURS] = one.tuned
    if arguments.llmcompressor and seed < arguments.rival_seeds:
        makers[RIVAL] = one.rival
    notes = {name: folder / f"{name.replace(' ', '-')}.json" for name in makers}
    if any(not note.is_file() for note in notes.values()):
        passages = documentation_texts(folder / "held", counts[1], seed=seed, held_out=True)
        examples = read_examples(passages, source, family_of(source.config), longest=arguments.longest)
        model = load(source, family_of(source.config))
        with torch.no_grad():
            whole = [predicted(model, example)[0].log_softmax(-1) for example in examples]
        del model
        for name, make in makers.items():
            if not notes[name].is_file():
                tell(f"seed {seed}: {name}")
                path = make()
                size = sum(info.bytes for info in Checkpoint.open(path).tensors.values())
                note = {"kl": divergences(path, whole, examples), "bytes": size}
                write(note, notes[name])
                if name != LAYERS:  # OURS goes on from there
                    shutil.rmtree(path)
        shutil.rmtree(folder / LAYERS.replace(" ", "-"), ignore_errors=True)
    found = {name: json.loads(note.read_text(encoding="utf-8")) for name, note in notes.items()}
    for name, note in found.items():
        tell(f"seed {seed}: {name}: KL {np.mean(note['kl']):.5f}")
    return found


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    source = Checkpoint.open(arguments.checkpoint)
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        seeds = [measured(arguments, seed, work, tell) for seed in range(1 if arguments.quick else arguments.seeds)]
    names = list(seeds[0])
    pooled = {
        name: ([v for one in seeds if name in one for v in one[name]["kl"]],
               [v for one in seeds if name in one for v in one[OURS]["kl"]])
        for name in names
    }  # fmt: skip
    against = {name: ratio(ours, theirs) for name, (theirs, ours) in pooled.items() if name != OURS}
    figures = {
        "model": source.name,
        "group": arguments.group,
        "samples": arguments.samples,
        "held_out": arguments.held_out,
        "longest": arguments.longest,
        "kl": {name: [round(float(np.mean(one[name]["kl"])), 6) for one in seeds if name in one] for name in names},
        "ours_against": against,
        "weight_bytes": {name: seeds[0][name]["bytes"] for name in names},
    }
    rivals = against.get(RIVAL, [float("nan")])[0]
    return figures, [
        Bar("KL of ours against round-to-nearest", against[NEAREST][0], NEAREST_BAR, at_most=True),
        Bar("KL of ours against llm-compressor's AWQ", rivals, RIVAL_BAR, at_most=True),
    ]


SCRIPT = Script("c1", "awq_text", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
