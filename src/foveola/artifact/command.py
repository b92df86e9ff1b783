"""``foveola inspect DIR``: what an artefact is, which files it has, what was done to it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foveola.artifact.describe import describe

MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("artefact", metavar="DIR", type=Path, help="a bundle or a checkpoint")
    parser.add_argument("--json", action="store_true", help="print everything that is known, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Verify, describe, and return 0. Raises Damaged with the name of the file that is wrong."""
    known = describe(arguments.artefact)
    if arguments.json:
        print(json.dumps(known, ensure_ascii=False, indent=2))
        return 0
    console = Console(highlight=False)
    console.print(_facts(known))
    console.print(_files(known["files"]))
    console.print(_lineage(known["lineage"]) if known["lineage"] else "No step is recorded in its lineage.")
    return 0


def _facts(known: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    for name, value in known.items():
        if isinstance(value, str | int | float):
            table.add_row(f"[bold]{name}", escape(_size(value) if name == "bytes" else str(value)))
    for name, value in known.get("bytes_by_dtype", {}).items():
        table.add_row(f"[bold]{escape(name)}", _size(value))
    return table


def _files(files: list[dict[str, Any]]) -> Table:
    table = Table("file", "size", "sha256")
    for file in files:
        table.add_row(escape(file["name"]), _size(file["bytes"]), file.get("sha256", "")[:16])
    return table


def _lineage(findings: list[dict[str, Any]]) -> Table:
    table = Table("step", "what changed", "before", "after", "", "seconds")
    for finding in findings:
        measured = "measured" if finding["measured"] else "modelled"
        sides = (_figures(finding["before"]), _figures(finding["after"]))
        table.add_row(
            escape(finding["step"]), escape(finding["changed"]), *sides, measured, f"{finding['seconds']:.1f}"
        )
    return table


def _figures(figures: dict[str, Any]) -> str:
    return escape(
        "\n".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items()
        )
    )


def _size(count: int | float | str) -> str:
    return f"{int(count) / MIB:.2f} MiB"
