"""Evidence: what a script of ``bench/`` measured, the bars that it is held to, written where README and docs find it.

Every script is the same outside: ``--quick`` for a smoke run that writes nothing, ``--json`` for programs, ``--out`` to
write elsewhere; exit code 0 when every bar holds, 1 when one does not. What it measures is a function that returns
figures and bars.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foveola.bench.machine import busy_note, command_line, describe_machine, describe_versions
from foveola.exchange import Refusal

MISSED, REFUSED = 1, 2
KEYS = ("id", "date", "machine", "versions", "command", "figures", "bars")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and what it has to reach: at least ``bar``, or at most where ``at_most``. NaN reaches nothing."""

    name: str
    value: float
    bar: float
    at_most: bool = False

    @property
    def ok(self) -> bool:
        """Whether it is reached."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    @property
    def wanted(self) -> str:
        """The bar with its direction."""
        return f"{'<=' if self.at_most else '>='} {self.bar:g}"

    def to_json(self) -> dict[str, Any]:
        """``value`` is None where nothing could be measured."""
        value = None if math.isnan(self.value) else float(f"{self.value:.5g}")
        return {"name": self.name, "value": value, "bar": self.wanted, "ok": self.ok}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one script found. ``figures`` is plain data."""

    id: str
    figures: dict[str, Any]
    bars: tuple[Bar, ...]

    @property
    def ok(self) -> bool:
        """Whether every bar holds."""
        return all(bar.ok for bar in self.bars)

    def to_json(self, *, machine: dict[str, Any], command: str) -> dict[str, Any]:
        """The document that is committed; its keys are ``KEYS``."""
        return {
            "id": self.id,
            "date": datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
            "machine": machine,
            "versions": describe_versions(),
            "command": command,
            "figures": self.figures,
            "bars": [bar.to_json() for bar in self.bars],
        }


def write(document: dict[str, Any], path: Path) -> None:
    """Write a document whole or not at all; makes the folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".partial")
    staged.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(staged, path)


def read(path: Path) -> dict[str, Any]:
    """A document as ``write`` left it. Raises ``Refusal`` naming the file where it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise Refusal(f"{path.name} cannot be read as evidence; run the script that writes it again.") from None
    lacking = [key for key in KEYS if not isinstance(document, dict) or key not in document]
    if lacking:
        raise Refusal(f"{path.name} lacks {', '.join(lacking)}; run the script that writes it again.")
    return dict(document)


Measure = Callable[[argparse.Namespace, "Tell"], tuple[dict[str, Any], Sequence[Bar]]]
"""Measures; gets the arguments and whom to tell what is being done."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Script:
    """One file of ``bench/``: ``<id>_<name>.py`` writes ``results/<id>_<name>.json`` beside it."""

    id: str
    name: str
    about: str
    measure: Measure
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None

    def main(self, home: Path, argv: Sequence[str] | None = None) -> int:
        """Measure, print, write, and return the exit code. ``home`` is the folder of the script."""
        argv = list(sys.argv[1:] if argv is None else argv)
        parser = argparse.ArgumentParser(
            prog=f"{self.id}_{self.name}.py",
            description=self.about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_arguments(parser)
        parser.add_argument("--quick", action="store_true", help="a smoke run; writes nothing unless --out is given")
        parser.add_argument("--json", action="store_true", help="print the document instead of tables")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of results/")
        arguments = parser.parse_args(argv)
        console = Console(stderr=True, highlight=False)
        machine = describe_machine()  # before we are the load ourselves
        tell: Tell = lambda what: console.print(f"[dim]{escape(what)}[/dim]")  # noqa: E731
        notes = busy_note(machine)
        for note in notes:
            tell(note)
        try:
            figures, bars = self.measure(arguments, tell)
        except Refusal as refusal:
            print(f"{parser.prog}: {refusal.message}", file=sys.stderr)
            return REFUSED
        told: dict[str, Any] = {"notes": notes} if notes else {}
        told |= {"quick": True} if arguments.quick else {}
        found = Evidence(self.id, {**figures, **told}, tuple(bars))
        command = command_line([str(home / parser.prog), *argv], home.parent)
        document = found.to_json(machine=machine, command=command)
        out = arguments.out or (None if arguments.quick else home / "results" / f"{self.id}_{self.name}.json")
        if out is not None:
            write(document, out)
        if arguments.json:
            print(json.dumps(document, ensure_ascii=False, indent=1))
        elif bars:
            Console(highlight=False).print(bars_table(bars))
        return 0 if found.ok or arguments.quick else MISSED


def bars_table(bars: Sequence[Bar]) -> Table:
    """The bars in the terminal."""
    table = Table("bar", "measured", "wanted", "", box=None, pad_edge=False, header_style="bold")
    for bar in bars:
        value = "–" if math.isnan(bar.value) else f"{bar.value:.4g}"
        table.add_row(escape(bar.name), value, bar.wanted, "[green]ok[/green]" if bar.ok else "[red]missed[/red]")
    return table
