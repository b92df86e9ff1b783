"""``foveola compress``: carry out a recipe on a checkpoint; ``foveola compress report``: what it did, as a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foveola.artifact import describe
from foveola.exchange import Invalid

for _package in ("torch", "transformers", "safetensors"):  # is the door open? Opening it waits for work to do
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("what", metavar="DIR | report DIR", nargs="+", help="the checkpoint; after the word report, one to report on")
    add("--recipe", metavar="FILE", type=Path, help="the steps, as .toml or .py")
    add("--out", metavar="DIR", type=Path, help="where the new checkpoint goes (report: the folder of the page)")
    add("--name", help="name of the new checkpoint (default: the recipe's, or the source's)")
    add("--evidence", metavar="FILE", type=Path, nargs="*", default=[], help="report: results with points to draw")
    add("--pictures", metavar="FILE", type=Path, nargs="*", default=[], help="report: pictures to draw token maps of")
    add("--replace", action="store_true", help="replace what is at --out")
    add("--json", action="store_true", help="print JSON for programs instead of a table for people")


def run(arguments: argparse.Namespace) -> int:
    """Compress, or report. Raises a ``Refusal`` for whatever cannot be done."""
    words = list(arguments.what)
    if words[0] == "report" and len(words) == 2:
        return _report(arguments, Path(words[1]))
    if len(words) != 1:
        raise Invalid(f"one checkpoint is compressed at a time; {len(words)} were named.", field="what")
    if arguments.recipe is None or arguments.out is None:
        raise Invalid("compressing needs --recipe FILE and --out DIR.", field="recipe")
    with _progress(quiet=arguments.json) as progress:
        progress("opening the workshop", 0.0)
        from foveola.compress.recipe import load_recipe
        from foveola.compress.run import compress

        recipe = load_recipe(arguments.recipe)
        made = compress(
            words[0], recipe, arguments.out, progress, name=arguments.name, replace=arguments.replace
        )  # fmt: skip
    _show(describe(made.path), arguments.out, as_json=arguments.json)
    return 0


def _report(arguments: argparse.Namespace, checkpoint: Path) -> int:
    from foveola.compress.report import write_report

    out = arguments.out or Path(f"{checkpoint.resolve().name}.report")
    written = write_report(checkpoint, out, arguments.evidence, arguments.pictures)
    if arguments.json:
        print(written.data.read_text(encoding="utf-8"), end="")
    else:
        print(f"{written.page.name} and {written.data.name} are in {written.page.parent.name}")
    return 0


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr that names the step; only plain calls where ``quiet``."""
    if quiet:
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def _show(description: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        json.dump(description, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(f"[bold]{escape(description['name'])}[/bold]  compressed into {escape(str(out))}")
    console.print(f"  {description['bytes']:,} bytes, model hash {description['model_hash']}")
    for finding in description["lineage"]:
        console.print(f"  {escape(finding['step'])}: {escape(finding['changed'])} ({finding['seconds']:.1f} s)")
        for figure, after in finding["after"].items():
            console.print(f"    {escape(figure)}  {finding['before'].get(figure, '–')} → {after}")
