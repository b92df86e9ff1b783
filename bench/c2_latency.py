"""What pruning in tiles is worth in time: the compiled bundles of the embedded model, whole and narrowed by several
shares, answer the same generated questions in turn on one thread.

Which units go does not matter here, only how many: every layer gives the same share, smallest weights first, nothing is
repaired or recovered. How good the answers stay is the matter of ``c2_prune.py``.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from foveola.artifact import Checkpoint, write_checkpoint
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.paired import side_by_side
from foveola.bench.work import generated_items
from foveola.compress.prune import PruneOptions, prune_model, write_narrowed
from foveola.family import family_of
from foveola.lower.compile import compile_checkpoint
from foveola.lower.options import CompileOptions
from foveola.weights.loading import load
from foveola.weights.widths import sizes_of

LATENCY, SHARE = 1.25, 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True, help="the embedded model's checkpoint")
    parser.add_argument("--shares", type=float, nargs="+", metavar="S", default=[SHARE], help="0.3 among them")
    parser.add_argument("--asked", type=int, metavar="N", default=60, help="questions")
    parser.add_argument("--precision", default="int8@load", help="of the compiled bundles")


@torch.no_grad()
def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    source = Checkpoint.open(arguments.checkpoint)
    shares = [SHARE] if arguments.quick else arguments.shares
    items = generated_items(3 if arguments.quick else arguments.asked)
    compiled = CompileOptions.of_precision(arguments.precision)
    with tempfile.TemporaryDirectory() as folder:
        tell("compiling the whole model")
        whole = compile_checkpoint(source.path, Path(folder, "whole"), compiled, name="whole")
        rows = []
        for share in shares:
            tell(f"narrowing by {share:.0%}")
            made, figures = narrowed(source, share, Path(folder, f"small-{share:g}"))
            small = compile_checkpoint(made.path, Path(folder, f"bundle-{share:g}"), compiled, name="small")
            times = side_by_side((whole, small), items, tell)
            rows.append({"share": share, "parameters": made.parameters, **figures, **times})
    ratios = {row["share"]: row["ratio"]["value"] for row in rows}
    cpu = {row["share"]: row["cpu_ratio"]["value"] for row in rows}
    bars = (
        Bar("30 % of the units' weights gone: the whole takes so many times as long (median)", ratios[SHARE], LATENCY),
        Bar("the same in processor time", cpu[SHARE], LATENCY),
    )
    return {"model": source.name, "parameters": source.parameters, "precision": arguments.precision, "rows": rows}, bars


def narrowed(source: Checkpoint, share: float, out: Path) -> tuple[Checkpoint, dict[str, float]]:
    """The checkpoint with every layer narrowed by ``share``, and what is left of the units' weights."""
    family = family_of(source.config)
    model = copy.deepcopy(load(source, family))
    usual = sizes_of(model)
    options = PruneOptions(share=share, score="magnitude", allocation="uniform", repair=False)
    pruned = prune_model(model, family, source.config, [], options)
    made = write_checkpoint(out, name="small", files=lambda folder: write_narrowed(source, model, usual, folder))
    return made, dict(pruned.figures)


SCRIPT = Script("c2", "latency", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
