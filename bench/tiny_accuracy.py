"""The embedded model's examination through the real engine: bytes in, greedy answer out, on held-out pictures only.

Prints what share is right per kind, language and wording with Wilson's 95 % intervals, the classes of steel and
magnetic tiles, and what steel defects are taken for.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foveola.artifact import Bundle
from foveola.bench.accuracy import bars_of, examine, figures_of
from foveola.bench.accuracy_table import render_accuracy
from foveola.bench.contender import Setup
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.local import LocalEngine
from foveola.bench.model import describe_model
from foveola.bench.paper import as_items, draw, read_paper
from foveola.engine.options import usable_cores
from foveola.serve.embedded import embedded_bundle
from foveola.tiny.exam import Question

MAX_TOKENS = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", required=True, help="the project's data folder")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--generated", type=int, metavar="N", default=200, help="generated scenes, and as many labels")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    path = (arguments.bundle or embedded_bundle()).resolve()
    generated = 4 if arguments.quick else arguments.generated
    tell("reading the questions")
    paper = read_paper(arguments.data, generated=generated)
    if arguments.quick:
        paper = draw(paper, 60)
    with LocalEngine(Setup(path, usable_cores(), MAX_TOKENS)) as engine:

        def ask(question: Question) -> str:
            (item,) = as_items([question])
            return engine.ask(item).text

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("questions", total=len(paper))
            marked = examine(paper, ask, lambda done: bar.update(task, completed=done))
    figures = {"model": describe_model(Bundle.open(path)), "generated": generated, **figures_of(marked)}
    if not arguments.json:
        Console(highlight=False).print(render_accuracy(figures))
    return figures, bars_of(marked)


SCRIPT = Script("tiny", "accuracy", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
