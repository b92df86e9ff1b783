"""``foveola bench``: the VLM-Bench table for this machine."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from foveola.bench.options import RIVALS, BenchOptions
from foveola.engine.options import usable_cores
from foveola.exchange import Invalid
from foveola.serve.embedded import embedded_bundle

DEFAULT_CLIENTS = (1, 2, 4, 8, 16)
DEFAULT_RATES = (-0.25, -0.5, -0.75, -0.9)
_QUICK = {"requests": 8, "warmup": 2, "max_tokens": 12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    given = parser.add_argument
    given("--bundle", metavar="DIR", type=Path, help="the bundle to measure (default: the embedded model)")
    given("--checkpoint", metavar="DIR", type=Path, help="the weights that the rivals load: what it was compiled from")
    given("--pictures", metavar="DIR", type=Path, help="also ask about the pictures in this folder")
    given("--requests", metavar="N", type=int, help="requests per contender and batch (default: 100)")
    given("--max-tokens", metavar="N", type=int, help="tokens per answer at most (default: 32)")
    given("--concurrency", metavar="N,N", help="requests at once (default: 1,4)")
    given("--rivals", metavar="NAMES", default=",".join(RIVALS), help="who else is measured, or none (default: all)")
    given("--load", action="store_true", help="instead: load on the server, clients at once and requests per second")
    given("--rates", metavar="R,R", help="requests per second for --load; -0.5 is half of what can be done")
    given("--cores", metavar="N", type=int, help="cores to run on (default: all that this process may use)")
    given("--json", action="store_true", help="print JSON for programs instead of tables for people")
    given("--html", metavar="FILE", type=Path, help="also write one page with plots")
    given("--quick", action="store_true", help="a few short requests, one at a time: does everything work?")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 0. Raises refusals: a bundle that is damaged, an option out of range."""
    options = options_of(arguments)
    if arguments.load:
        return _load(arguments, options)
    from foveola.bench.run import bench  # the room behind it is large

    if arguments.html is not None:
        # Before the long run, not after it: where matplotlib is missing, this says so.
        from foveola.bench.page import render_page
        from foveola.bench.plots import draw_plots

        if not arguments.html.absolute().parent.is_dir():
            raise Invalid(f"{arguments.html} lies in a folder that does not exist; make it first.", field="html")
    report = measured(bench, options)
    if arguments.html is not None:
        arguments.html.write_text(render_page(report, draw_plots(report)), encoding="utf-8")
    _print(report, as_json=arguments.json)
    if arguments.html is not None:
        Console(stderr=True).print(f"The page is in {arguments.html}.")
    return 0


def _load(arguments: argparse.Namespace, options: BenchOptions) -> int:
    """Measure a server under load, print, and return 0."""
    from foveola.bench.load_report import load_page, load_table, measure_load

    rates = DEFAULT_RATES if arguments.rates is None else rates_of(arguments.rates)
    concurrency = options.concurrency if arguments.concurrency or arguments.quick else DEFAULT_CLIENTS
    chosen = replace(options, concurrency=concurrency)
    report = measured(lambda chosen, tell: measure_load(chosen, rates, tell), chosen)
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
    else:
        Console(highlight=False).print(load_table(report))
    if arguments.html is not None:
        arguments.html.write_text(load_page(report), encoding="utf-8")
    return 0


def rates_of(text: str) -> tuple[float, ...]:
    """``2,4.5,-0.5`` as numbers. Raises ``Invalid``."""
    try:
        rates = tuple(float(word) for word in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not all(math.isfinite(rate) and rate != 0 for rate in rates):
        raise Invalid(f"rates is {text!r}; expected numbers such as 2,4.5 or -0.5 (a share).", field="rates")
    return rates


def options_of(arguments: argparse.Namespace) -> BenchOptions:
    """The options that the arguments stand for. Raises ``Invalid``, or ``Unavailable`` without an embedded model."""
    chosen: dict[str, Any] = dict(_QUICK) if arguments.quick else {}
    chosen |= {"concurrency": (1,)} if arguments.quick else {}
    for name in ("requests", "max_tokens", "checkpoint", "pictures"):
        if getattr(arguments, name) is not None:
            chosen[name] = getattr(arguments, name)
    if arguments.concurrency is not None:
        chosen["concurrency"] = numbers(arguments.concurrency)
    rivals = () if arguments.rivals in ("", "none") else tuple(arguments.rivals.split(","))
    cores = usable_cores() if arguments.cores is None else min(arguments.cores, usable_cores())
    return BenchOptions(bundle=arguments.bundle or embedded_bundle(), cores=cores, rivals=rivals, **chosen)


def numbers(text: str) -> tuple[int, ...]:
    """``1,4`` as (1, 4). Raises ``Invalid``."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise Invalid(f"concurrency is {text!r}; expected whole numbers such as 1,4.", field="concurrency") from None


def measured(bench: Any, options: BenchOptions) -> dict[str, Any]:
    """Run the benchmark with a progress bar on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn between requests only: a thread that redraws would compute beside whoever is measured.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)
            bar.refresh()

        report: dict[str, Any] = bench(options, tell)
        return report


def _print(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    from foveola.bench.table import render

    console = Console(highlight=False)
    console.print(render(report, width=console.width))
