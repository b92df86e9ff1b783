"""``foveola rewrite``: fuse a graph for a chip, and prove that it still computes the same."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from foveola.exchange import Invalid

if TYPE_CHECKING:
    import onnx_ir as ir

    from foveola.lower.rewrite.rewrite import Report

for _package in ("onnx", "onnx_ir"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="an ONNX file")
    add("--chip", required=True, help="ascend910b, mlu270 or edgetpu")
    add(
        "--out", metavar="DIR", type=Path, help="write model.onnx, vendor.onnx (without functions) and report.json here"
    )
    add("--replace", action="store_true", help="replace a directory that is there")
    add("--emit", action="store_true", help="with --out: also build.sh, the command line of the chip's own compiler")
    add("--shape", metavar="NAME=1,3,H,W", action="append", default=[], help="shape of an input; repeatable")
    add("--dim", metavar="NAME=N", action="append", default=[], help="number for a named size; repeatable")
    add("--beam", metavar="N", type=int, default=8, help="choices kept while searching (default: 8)")
    add("--json", action="store_true", help="print JSON for programs instead of a table for people")


def run(arguments: argparse.Namespace) -> int:
    """Rewrite, write, print. Raises a ``Refusal`` for whatever cannot be done."""
    from foveola.lower.rewrite.chips import chip_of
    from foveola.lower.rewrite.graph import bind, open_model
    from foveola.lower.rewrite.rewrite import rewrite

    out: Path | None = arguments.out
    if arguments.emit and out is None:
        raise Invalid("--emit writes into a directory; give --out.", field="out")
    if out is not None and out.exists() and not arguments.replace:
        raise Invalid(f"{out.name} exists; give --replace to replace it, or another --out.", field="out")
    if not 1 <= arguments.beam <= 1024:
        raise Invalid(f"--beam is {arguments.beam}; it is 1 to 1024.", field="beam")
    chip = chip_of(arguments.chip)
    shapes = {name: _numbers(size, "shape") for name, size in map(_pair, arguments.shape)}
    sizes = {name: _numbers(size, "dim")[0] for name, size in map(_pair, arguments.dim)}
    model = open_model(arguments.model)
    bind(model, sizes, shapes)
    report = rewrite(model, chip, width=arguments.beam, tell=_tell if sys.stderr.isatty() else lambda what, share: None)
    if out is not None:
        _write(model, report, out, arguments.emit)
    if arguments.json:
        json.dump(report.to_json(), sys.stdout, indent=1)
        print()
    else:
        _show(report)
    return 0


def _pair(word: str) -> tuple[str, str]:
    name, equals, size = word.rpartition("=")
    if not equals or not name:
        raise Invalid(f"{word!r} was given; write NAME=SIZE.")
    return name, size


def _numbers(sizes: str, field: str) -> list[int]:
    try:
        numbers = [int(one) for one in sizes.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise Invalid(f"{sizes!r} was given for a size; write whole numbers from 1, as in 1,3,224,224.", field=field)
    return numbers


def _tell(what: str, share: float) -> None:
    print(f"\r\x1b[K{100 * share:3.0f} % {what}", end="" if share < 0.9 else "\n", file=sys.stderr, flush=True)


def _write(model: ir.Model, report: Report, out: Path, emit: bool) -> None:
    """The whole directory or nothing."""
    import onnx_ir as ir
    from onnx_ir.passes.common import InlinePass

    from foveola.lower.rewrite.emit import VENDOR_MODEL, command_of

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as staged:
        place = Path(staged) / "out"
        place.mkdir()
        ir.save(model, place / "model.onnx")
        (place / "report.json").write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
        InlinePass()(model)
        ir.save(model, place / VENDOR_MODEL)
        if emit:
            shapes = {
                value.name or "": [one if isinstance(one, int) else str(one) for one in value.shape or ()]
                for value in model.graph.inputs
            }
            script = place / "build.sh"
            script.write_text(command_of(report.chip, shapes), encoding="utf-8")
            script.chmod(0o755)
        if out.is_dir():
            shutil.rmtree(out)
        elif out.exists():
            out.unlink()
        place.rename(out)


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("", "before", "after", box=None, pad_edge=False, header_style="bold")
    old, new = report.before, report.after
    table.add_row("kernels", f"{old.kernels}", f"{new.kernels} (-{report.fewer_kernels:.0%})")
    table.add_row("on the host", f"{old.host_kernels}", f"{new.host_kernels}")
    table.add_row("MB moved", f"{old.bytes_moved / 1e6:.2f}", f"{new.bytes_moved / 1e6:.2f}")
    table.add_row("ms, modelled", f"{old.modelled_s * 1e3:.3f}", f"{new.modelled_s * 1e3:.3f}")
    console.print(table)
    for name, count in sorted(report.applied.items()):
        console.print(f"{count:5d} x {name}")
    for reason, count in sorted(report.reasons.items()):
        console.print(f"[dim]{count:5d} x not {reason}[/dim]")
    for name, count in sorted(report.refused.items()):
        console.print(f"{count:5d} x {name} refused: the proof failed")
    console.print(f"largest difference of a rewrite {report.worst:.1e}, of all outputs {report.whole:.1e} (relative)")
    console.print(f"a last bit of the inputs makes {report.noise:.1e} of all outputs")
    console.print(f"[dim]{report.chip.title}: latency is modelled, {report.chip.numbers_from}.[/dim]")
