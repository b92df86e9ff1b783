"""``foveola drift``: make a reference from a folder of pictures, and judge other folders by it.

In this room because it asks an engine; the judging itself is the room ``drift``.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from foveola.drift.monitor import Monitor, MonitorOptions
from foveola.drift.observation import Observation, observe
from foveola.drift.reference import Reference, calibrate
from foveola.exchange import BadImage, Invalid, Request, Sampling, Turn
from foveola.serve.embedded import embedded_bundle

QUESTION = "What defect is on this surface?"
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif"})
LABEL_CHARS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    make = verbs.add_parser("calibrate", help="make a reference from pictures that are as they should be")
    make.add_argument("--out", metavar="FILE", type=Path, required=True, help="the reference to write (.npz)")
    judge = verbs.add_parser("check", help="watch a folder as if its pictures came from one camera, in order of names")
    judge.add_argument("--reference", metavar="FILE", type=Path, required=True, help="what `drift calibrate` wrote")
    judge.add_argument(
        "--false-alarms", metavar="N", type=float, default=1.0, help="expected per 10 000 frames (default: 1)"
    )
    for verb in (make, judge):
        verb.add_argument("pictures", metavar="DIR", type=Path, help="a folder of pictures")
        verb.add_argument("--question", default=QUESTION, help=f"what to ask about each (default: {QUESTION})")
        verb.add_argument("--bundle", metavar="DIR", type=Path, help="the bundle to ask (default: the embedded model)")
        verb.add_argument("--json", action="store_true", help="print figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """0; for ``check`` 1 where an alarm was raised. Raises refusals."""
    if arguments.what == "calibrate":
        return _calibrate(arguments)
    return _check(arguments)


def _calibrate(arguments: argparse.Namespace) -> int:
    reference = calibrate(list(_observations(arguments)))
    reference.save(arguments.out)
    told = {
        "frames": reference.frames,
        "classes": [label for label in reference.labels if label],
        "independent_after": reference.memory,
        "features": reference.kernel is not None,
    }
    print(json.dumps(told, ensure_ascii=False) if arguments.json else f"{arguments.out.name}: {told}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    if not arguments.false_alarms > 0:
        raise Invalid(f"--false-alarms is {arguments.false_alarms}; expected a number above 0, such as 1.")
    monitor = Monitor(Reference.open(arguments.reference), MonitorOptions(false_alarms=arguments.false_alarms))
    alarms = [alarm for seen in _observations(arguments) for alarm in monitor.update(seen)]
    standing = next(iter(monitor.standings().values()))
    if arguments.json:
        print(json.dumps({"alarms": [asdict(a) for a in alarms], "standing": asdict(standing)}, ensure_ascii=False))
        return int(bool(alarms))
    table = Table("chart", "share of its bound", "alarm at frame", title=f"{standing.frames} frames")
    at: dict[str, str] = {alarm.chart: str(alarm.frame) for alarm in alarms}
    for chart, share in standing.shares.items():
        table.add_row(chart, f"{share:.2f}", at.get(chart, "none"))
    table.add_row("described rule", f"mean {standing.rule_mean or 0:.2f}", standing.rule_level)
    Console().print(table)
    return int(bool(alarms))


def _observations(arguments: argparse.Namespace) -> Iterator[Observation]:
    """Asks the engine about every picture of the folder, in order of names."""
    folder: Path = arguments.pictures
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES) if folder.is_dir() else []
    if not paths:
        raise BadImage(f"{folder.name} holds no pictures; name a folder with some ({', '.join(sorted(SUFFIXES))}).")
    from foveola.artifact import Bundle
    from foveola.engine.engine import Engine
    from foveola.engine.once import answer_once

    engine = Engine.open(Bundle.open(arguments.bundle or embedded_bundle()))
    try:
        for path in track(paths, "Looking…", console=Console(stderr=True)):
            turn = Turn("user", arguments.question, (path.read_bytes(),))
            text, usage = answer_once(engine, Request(uuid.uuid4().hex, (turn,), Sampling(max_tokens=24)))
            yield observe(folder.name, text[:LABEL_CHARS], usage.evidence[0])
    finally:
        engine.close(0.0)
