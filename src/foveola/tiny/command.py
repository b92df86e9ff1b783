"""``foveola tiny``: train the embedded model, and write it as a checkpoint."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path

from foveola.exchange import Invalid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    verbs = parser.add_subparsers(dest="action", required=True)
    train = verbs.add_parser("train", help="train, or go on with a run (docs/training.md)")
    train.add_argument(
        "--data", type=Path, required=True, help="folder that holds defects/manifest.csv and ocr/manifest.csv"
    )
    train.add_argument("--out", type=Path, default=Path("runs/tiny"), help="the run: state, tokenizer, log")
    train.add_argument("--steps", type=int, help="optimiser steps in all")
    train.add_argument("--looking", type=int, help="of them, steps of the vision tower alone")
    train.add_argument("--mute", type=int, help="first steps in which nothing is asked about labels")
    train.add_argument("--decay", type=int, help="last steps, over which the learning rate falls")
    train.add_argument("--rate", type=float, help="learning rate")
    train.add_argument("--seed", type=int)
    train.add_argument("--threads", type=int)
    train.add_argument("--start", type=Path, metavar="CHECKPOINT", help="begin from the weights of a checkpoint")
    train.add_argument(
        "--at", type=int, default=0, metavar="STEP", help="with --start: the step whose lessons come first"
    )
    export = verbs.add_parser("export", help="write a run's weights as a checkpoint")
    export.add_argument("--run", dest="folder", type=Path, default=Path("runs/tiny"), help="the run")
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--card", type=Path, help="a model card to put into it")
    export.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Trains or exports. Raises Invalid for settings that make no sense, Damaged for a run without a state."""
    if arguments.action == "export":
        from foveola.tiny.checkpoint import export_checkpoint

        written = export_checkpoint(arguments.folder, arguments.out, card=arguments.card)
        told = {"checkpoint": str(arguments.out), "model_hash": written.model_hash, "tensors": len(written.tensors)}
        print(json.dumps(told) if arguments.json else f"wrote {told['checkpoint']}: {told['tensors']} tensors")
        return 0
    from foveola.tiny.lessons import Plan
    from foveola.tiny.train import train

    given = {f.name: getattr(arguments, f.name, None) for f in fields(Plan)}
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("steps", "threads"):
        if chosen.get(name, 1) < 1:
            raise Invalid(f"{name} is {chosen[name]}; expected at least 1.", field=name)
    try:
        train(arguments.data, arguments.out, Plan(**chosen), start=arguments.start, at=arguments.at)
    except FileNotFoundError as missing:
        raise Invalid(str(missing), field="data") from None
    return 0
