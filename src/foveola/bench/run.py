"""From options to a report: who takes part, what is asked, measured in one run."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.bench.contender import CannotTakePart, Contender, Setup
from foveola.bench.machine import busy_note, command_line, describe_machine, describe_versions, pinned, platform_line
from foveola.bench.measure import Progress, measure
from foveola.bench.model import describe_model
from foveola.bench.options import BenchOptions
from foveola.bench.remote import Remote
from foveola.bench.report import FORMAT, agreement, latencies, row_of, versus
from foveola.bench.sample import Item
from foveola.bench.server import HttpServer
from foveola.bench.work import folder_items, generated_items

ENGINE, HTTP = "foveola", "foveola HTTP"
NAMES = {"transformers": "transformers"}
GENERATED = 240  # different questions at most; more requests ask them again


def bench(options: BenchOptions, progress: Progress) -> dict[str, Any]:
    """Measure and return the report (``foveola.bench/1``): plain data, everything that the table and the page show."""
    bundle = Bundle.open(options.bundle)
    items = workload(options)
    missing: list[str] = []
    machine = describe_machine()  # before we are the load ourselves
    with pinned(options.cores), contenders(options, missing, progress) as taking_part:
        series = measure(
            taking_part,
            items,
            requests=options.requests,
            concurrency=options.concurrency,
            warmup=options.warmup,
            progress=progress,
        )
        peaks = {contender.name: contender.peak_memory() for contender in taking_part}
    names = [contender.name for contender in taking_part]
    rivals = [name for name in names if name not in (ENGINE, HTTP)]
    platform = platform_line({**machine, "cores": options.cores})
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        "machine": machine,
        "versions": describe_versions(),
        "command": command_line(sys.argv, Path.cwd()),
        "model": describe_model(bundle),
        "options": {
            "requests": options.requests,
            "max_tokens": options.max_tokens,
            "concurrency": list(options.concurrency),
            "cores": options.cores,
            "questions": len(items),
        },
        "rows": [row_of(one, platform, peaks[one.contender]).to_json() for one in series],
        "ratios": [ratio.to_json() for ratio in versus(series, ENGINE)],
        "agreement": [agreement(series, name, rival).to_json() for rival in rivals for name in (ENGINE, HTTP)],
        "missing": missing,
        "notes": [*missing, *busy_note(machine)],
        "latencies": latencies(series),
    }


def workload(options: BenchOptions) -> list[Item]:
    """Generated pictures and those of the folder, mixed evenly where there are both."""
    given = [] if options.pictures is None else folder_items(options.pictures)
    made = generated_items(min(GENERATED, options.requests), seed=options.seed)
    if not given:
        return made
    placed = [((place + 0.5) / len(part), item) for part in (made, given) for place, item in enumerate(part)]
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


@contextmanager
def contenders(options: BenchOptions, missing: list[str], progress: Progress) -> Iterator[Sequence[Contender]]:
    """Open everybody who can take part; ``missing`` gets a line for each rival who can't. Closes them all."""
    opened: list[Contender] = []
    ours = Setup(options.bundle.resolve(), options.cores, options.max_tokens)
    try:
        progress(f"starting {ENGINE}", 0, 0)
        opened.append(Remote(ENGINE, "engine", ours))
        progress(f"starting {HTTP}", 0, 0)
        opened.append(HttpServer(HTTP, ours))
        for rival in options.rivals:
            progress(f"starting {NAMES[rival]}", 0, 0)
            try:
                opened.append(_rival(rival, options))
            except CannotTakePart as reason:
                missing.append(f"{NAMES[rival]} is not measured: {reason.message}.")
        yield opened
    finally:
        for contender in opened:
            contender.close()


def _rival(rival: str, options: BenchOptions) -> Contender:
    if options.checkpoint is None:
        raise CannotTakePart("name the checkpoint that the bundle was compiled from with --checkpoint DIR")
    if not options.checkpoint.is_dir():
        raise CannotTakePart(f"{options.checkpoint.name} is no directory")
    return Remote(NAMES[rival], rival, Setup(options.checkpoint.resolve(), options.cores, options.max_tokens))
