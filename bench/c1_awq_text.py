"""Four bits on a real language model: how far the answers move, against round-to-nearest and llm-compressor's AWQ.

The matrices of all blocks go to 4 bits in groups, the rest stays whole, so that every way spends the same bytes.
Divergence is KL to the unrounded model per token, on passages of the held-out topics of Python's reference manual;
calibration is on passages of the others. Every seed draws other passages. Intervals are bootstrapped over passages.

The weights must be whole numbers' own: a model that was stored in blocks of 32 by 4 bits (as in a Q4_1 GGUF) lies on
that grid already, and groups of 32 would find it again. Take another group for such a model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveola.bench.llmcompressor_awq as rival
from foveola.artifact import Checkpoint
from foveola.bench.calibration import documentation_texts
from foveola.bench.evidence import Bar, Script, Tell
from foveola.compress.awq import Awq, HalfOptions
from foveola.compress.example import predicted
from foveola.compress.recipe import Recipe
from foveola.compress.rounding import Round
from foveola.compress.run import compress
from foveola.compress.samples import read_examples
from foveola.compress.steps import Step
from foveola.exchange import Unavailable
from foveola.family import family_of
from foveola.weights.loading import load

RIVAL_BAR, NEAREST_BAR = 0.7, 0.4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True, help="a text model")
    parser.add_argument(
        "--llmcompressor", metavar="PYTHON", help="the interpreter of its environment; without: left out"
    )
    parser.add_argument("--group", type=int, metavar="N", default=128)
    parser.add_argument("--seeds", type=int, metavar="N", default=3)
    parser.add_argument("--samples", type=int, metavar="N", default=128, help="passages to calibrate on")
    parser.add_argument("--held-out", type=int, metavar="N", default=64, help="passages to measure on")
    parser.add_argument("--longest", type=int, metavar="N", default=256, help="tokens of a passage")


def ways(group: int) -> dict[str, Step]:
    """What is compared, all at the same bytes."""

    def awq(power: float = 0.5, **off: bool) -> Awq:
        return Awq(decoder=HalfOptions(4, group, **off), embedding="keep", head="keep", power=power)  # type: ignore[arg-type]

    return {
        "round-to-nearest": Round(("model.layers.*",), f"int4/{group}"),
        "awq": awq(clip=False, gptq=False),
        "awq+clip": awq(gptq=False),
        "gptq": awq(scales=False, clip=False),
        "ours": awq(),
        "ours, every token alike": awq(power=0.0),
    }


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


def made(arguments: argparse.Namespace, seed: int, folder: Path, tell: Tell) -> Iterator[tuple[str, Path]]:
    """Every way's checkpoint for the passages of ``seed``."""
    source = Checkpoint.open(arguments.checkpoint)
    count = 16 if arguments.quick else arguments.samples
    samples = documentation_texts(folder, count, seed=seed)
    for number, (name, step) in enumerate(ways(arguments.group).items()):
        tell(f"seed {seed}: {name}")
        out = folder / f"way-{number}"
        yield name, compress(arguments.checkpoint, Recipe((step,), calibration=samples, seed=seed), out).path
    if arguments.llmcompressor:
        tell(f"seed {seed}: llm-compressor")
        examples = read_examples(samples, source, family_of(source.config), longest=arguments.longest)
        tokens, out = folder / "tokens.json", folder / "llmcompressor"
        tokens.write_text(json.dumps([one.inputs["input_ids"][0].tolist() for one in examples]))
        given = [str(arguments.checkpoint), str(tokens), str(out), str(arguments.group)]
        done = subprocess.run([arguments.llmcompressor, rival.__file__, *given], capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"llm-compressor failed: {done.stderr.strip().splitlines()[-1:]}")
        yield "llm-compressor AWQ", out


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    source = Checkpoint.open(arguments.checkpoint)
    family = family_of(source.config)
    kl: dict[str, list[list[float]]] = {}
    sizes: dict[str, int] = {}
    for seed in range(1 if arguments.quick else arguments.seeds):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            count = 4 if arguments.quick else arguments.held_out
            passages = documentation_texts(folder / "held", count, seed=seed, held_out=True)
            examples = read_examples(passages, source, family, longest=arguments.longest)
            model = load(source, family)
            with torch.no_grad():
                whole = [predicted(model, one)[0].log_softmax(-1) for one in examples]
            del model
            for name, path in made(arguments, seed, folder, tell):
                kl.setdefault(name, []).append(divergences(path, whole, examples))
                sizes[name] = sum(info.bytes for info in Checkpoint.open(path).tensors.values())
                tell(f"seed {seed}: {name}: KL {np.mean(kl[name][-1]):.5f}")
    pooled = {name: [value for seed in seeds for value in seed] for name, seeds in kl.items()}
    against = {name: ratio(pooled["ours"], values) for name, values in pooled.items() if name != "ours"}
    figures = {
        "model": source.name,
        "group": arguments.group,
        "samples": arguments.samples,
        "held_out": arguments.held_out,
        "longest": arguments.longest,
        "kl": {name: [round(float(np.mean(seed)), 6) for seed in seeds] for name, seeds in kl.items()},
        "ours_against": against,
        "weight_bytes": sizes,
    }
    rivals = against.get("llm-compressor AWQ", [float("nan")])[0]
    return figures, [
        Bar("KL of ours against round-to-nearest", against["round-to-nearest"][0], NEAREST_BAR, at_most=True),
        Bar("KL of ours against llm-compressor's AWQ", rivals, RIVAL_BAR, at_most=True),
    ]


SCRIPT = Script("c1", "awq_text", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
