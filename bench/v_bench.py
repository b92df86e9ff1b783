"""The VLM-Bench table of the embedded model on this machine, as `foveola bench` makes it, kept as evidence."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from foveola.bench import command
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.run import bench
from foveola.bench.table import render

KEPT = ("model", "options", "rows", "ratios", "agreement")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given = parser.add_argument
    given("--bundle", metavar="DIR", type=Path, help="default: the embedded model")
    given("--checkpoint", metavar="DIR", type=Path, help="the weights that transformers loads")
    given("--pictures", metavar="DIR", type=Path, help="also ask about the pictures in this folder")
    given("--requests", metavar="N", type=int)
    given("--max-tokens", metavar="N", type=int)
    given("--concurrency", metavar="N,N")
    given("--cores", metavar="N", type=int)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    arguments.rivals = "transformers"
    report = command.measured(bench, command.options_of(arguments))
    if not arguments.json:
        console = Console(highlight=False)
        console.print(render(report, width=console.width))
    return {**{key: report[key] for key in KEPT}, "not_measured": report["missing"]}, ()


SCRIPT = Script("v", "bench", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
