"""``foveola distil``: records of a line in, a repaired checkpoint, its bundle and a patch for a running server out."""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foveola.exchange import Invalid

for _package in ("torch", "transformers", "onnxscript", "safetensors"):  # is the door open? Opening it waits
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

REFUSED_BY_GATE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("checkpoint", metavar="DIR", type=Path, help="the checkpoint whose model serves (Qwen2-VL)")
    add("--records", metavar="DIR", type=Path, required=True, help="the line's records: pictures and records.jsonl")
    add("--old", metavar="DIR", type=Path, help="labelled records from before: what must not be forgotten")
    add("--out", metavar="DIR", type=Path, required=True, help="checkpoint, bundle, patch, report; and the run's state")
    add("--classes", metavar="A,B,C", help="the answers (default: the labels that occur)")
    add("--question", help="what is asked about a picture (default: What is the defect?)")
    add("--size", metavar="HxW", default="112x112", help="pixels to which pictures are scaled (default: 112x112)")
    add("--preset", default="balanced", help="balanced, described, fine_tuning, kd, logit_adjusted or replay")
    add("--rate", type=float, help="learning rate")
    add("--fresh", type=int, help="pictures of the stream in a step (default: 4; 12 more come from memory)")
    add("--seed", type=int, default=0)
    add("--points", type=float, default=1.0, help="points of accuracy that a head class may lose (default: 1)")
    add("--no-persons", action="store_true", help="the pictures show nobody: do not search for faces and plates")
    add("--name", help="name of the new checkpoint (default: the old one's)")
    add("--precision", default="int4", help="of the bundle, as foveola compile understands it (default: int4)")
    add("--no-bundle", action="store_true", help="stop at the checkpoint and the patch")
    add("--patch", metavar="URL", help="send the new tower to the server there, while it serves")
    add("--key-file", metavar="FILE", type=Path, help="with --patch: an admin's key (default: $FOVEOLA_KEY)")
    add("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 where the gate did not let the result pass: then only the report is written. Raises refusals."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=arguments.json) as progress:
        from foveola.loop.close import Order, close

        order = Order(
            checkpoint=arguments.checkpoint, records=arguments.records, old=arguments.old, out=arguments.out,
            classes=_classes(arguments.classes), question=arguments.question, size=_size(arguments.size),
            options=_options(arguments), points=arguments.points, private=not arguments.no_persons,
            name=arguments.name, precision=None if arguments.no_bundle else arguments.precision,
            server=arguments.patch, key_file=arguments.key_file,
        )  # fmt: skip
        report = close(order, progress)
    print(json.dumps(report, ensure_ascii=False, indent=1) if arguments.json else "\n".join(_told(report)))
    return 0 if report["gate"]["passed"] else REFUSED_BY_GATE


def _options(arguments: argparse.Namespace) -> Any:
    from foveola.learn.distil.options import preset

    given = {name: getattr(arguments, name) for name in ("rate", "fresh") if getattr(arguments, name) is not None}
    return preset(arguments.preset, seed=arguments.seed, **given)


def _classes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) != len(names) or len(names) < 2 or "" in names:
        raise Invalid(
            f"--classes is {text!r}; expected at least two different names, as in crack,pit.", field="classes"
        )
    return names


def _size(text: str) -> tuple[int, int]:
    height, cross, width = text.partition("x")
    if not (cross and height.isdigit() and width.isdigit() and int(height) and int(width)):
        raise Invalid(f"--size is {text!r}; expected height and width in pixels, as in 112x112.", field="size")
    return int(height), int(width)


def _told(report: dict[str, Any]) -> list[str]:
    lines = []
    for where in ("old", "new"):
        for name, before in report["before"][where].items():
            after = report["after"][where][name]
            lines.append(f"  {where} {name}: {before['right']} -> {after['right']} of {before['count']} right")
    gate = report["gate"]
    if not gate["passed"]:
        return ["The gate holds it back:", *(f"  {reason}" for reason in gate["reasons"]), *lines]
    lines.insert(0, f"{gate['share']:.0%} of the way to the new weights passes the gate.")
    lines.append(f"{report['checkpoint']['name']}: {report['checkpoint']['model_hash']}")
    if report["bundle"]:
        lines.append(f"bundle: {report['bundle']['model_hash']}")
    if report["server"]:
        lines.append(f"the server: {report['server']['before'][:12]} -> {report['server']['model_hash'][:12]}")
    return lines
