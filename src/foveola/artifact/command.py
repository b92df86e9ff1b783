"""``foveola inspect``: verify an artefact and show what it is and where it comes from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foveola.artifact.describe import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("artefact", metavar="DIR", type=Path, help="a bundle, a checkpoint or a prompt")
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of tables for people")


def run(arguments: argparse.Namespace) -> int:
    """Print the description. Raises Damaged, with the file's name, for an artefact that is not what it should be."""
    description = describe(arguments.artefact)
    if arguments.json:
        json.dump(description, sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        _show(description)
    return 0


def _show(description: Mapping[str, Any]) -> None:
    from rich.console import Console  # after the work, so that --json and errors do not pay for it
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{escape(description['name'])}[/bold]  {description['kind']}, every file as it should be")
    for label, value in _facts(description):
        console.print(f"  {label:<13} {escape(value)}")
    files = Table("file", "bytes", "sha256", title="Files", title_justify="left", box=None, pad_edge=False)
    files.columns[1].justify = "right"
    for file in description["files"]:
        files.add_row(escape(file["name"]), f"{file['bytes']:,}", file.get("sha256", "")[:16])
    console.print(files)
    if not description["lineage"]:
        console.print("Lineage: none recorded.")
        return
    lineage = Table(
        "step", "what it changed", "figure", "before", "after", "", title="Lineage", title_justify="left", box=None,
        pad_edge=False,
    )  # fmt: skip
    for finding in description["lineage"]:
        step, changed = escape(finding["step"]), escape(finding["changed"])
        kind = "measured" if finding["measured"] else "modelled"
        figures = list(dict.fromkeys([*finding["before"], *finding["after"]]))
        for figure in figures or [""]:
            before, after = (_number(finding[side].get(figure, "")) for side in ("before", "after"))
            lineage.add_row(step, changed, escape(figure), escape(before), escape(after), kind if figure else "")
            step = changed = ""
    console.print(lineage)


def _facts(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("model hash", description["model_hash"] or "none: not sealed"),
        ("bytes", f"{description['bytes']:,}"),
    ]
    if description["kind"] == "bundle":
        model = description["model"]
        facts += [
            ("created", description["created"]),
            ("family", str(model["family"])),
            ("graphs", ", ".join(model["graphs"])),
            *_phases_of(model),
        ]
    elif description["kind"] == "prompt":
        facts += [
            ("created", description["created"]),
            ("shape", " x ".join(map(str, description["shape"]))),
            ("for bundle", description["base"] or "none named"),
        ]
    else:
        facts += [
            ("architecture", ", ".join(map(str, description["architectures"])) or "not named"),
            ("parameters", f"{description['parameters']:,} in {description['tensors']:,} tensors"),
            ("bytes by type", ", ".join(f"{k} {v:,}" for k, v in description["bytes_by_dtype"].items())),
        ]
    return facts


def _phases_of(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How prompts are read, where the plan has a layout of the decoder's weights for them."""
    phases = model.get("plan", {}).get("phases") or {}
    if phases.get("prefill_level") is None:
        return []
    levels = f"prompts at accuracy level {phases['prefill_level']}, tokens at {phases['decode_level']}"
    return [("two layouts", f"{levels}; {phases['extra_mib']:g} MiB more in memory")]


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
