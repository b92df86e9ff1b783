"""``foveola compile``: turn a checkpoint into a bundle."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foveola.artifact import Finding, describe
from foveola.exchange import Invalid
from foveola.lower.options import CompileOptions, parse_input_shape
from foveola.weights.formats import Storage, parse_storage

# Whether the door is open is asked here, where the command line listens for it; opening it (torch: seconds) waits
# until there is something to compile.
for _package in ("torch", "transformers", "onnx_ir", "onnxscript"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--model", metavar="DIR", type=Path, required=True, help="the checkpoint, in the Hugging Face layout")
    add("--out", metavar="DIR", type=Path, help="where the bundle goes (default: <checkpoint's name>.bundle, here)")
    add("--name", help="name of the bundle (default: the checkpoint's)")
    add("--replace", action="store_true", help="replace a bundle that is there")
    add(
        "--precision",
        default="int4",
        help="fp32, fp16, int8, int4 or int8@load: the usual mixture for it (default: int4)",
    )
    for part in ("vision", "decoder", "head", "embedding"):
        add(f"--{part}", metavar="STORAGE", help=f"storage of this part if different, as in int8 or int4/64@1 ({part})")
    add(
        "--set",
        metavar="PATTERN=STORAGE",
        action="append",
        default=[],
        help="storage of the modules whose path matches, as in '*.down_proj=int8'; repeatable, the last match counts",
    )
    add("--block-size", type=int, default=32, help="weights that share a scale (default: 32)")
    add("--accuracy-level", type=int, default=4, help="4: multiply in int8, fast; 1: in fp32 (default: 4)")
    add("--input-shape", metavar="1,3,H,W", help="largest picture in pixels (default: the checkpoint's limit)")
    add("--seq-len", metavar="N", type=int, help="also compare a prompt of this many tokens with the model")
    add("--max-length", metavar="N", type=int, default=4096, help="tokens of prompt and answer (default: 4096)")
    add("--evidence-layer", metavar="N", type=int, help="decoder layer whose attention is shown as evidence")
    add(
        "--select-after",
        metavar="N",
        type=int,
        help="blocks of the vision tower after which a picture may be told to keep fewer visual tokens (default: none)",
    )
    add("--visual-tokens", metavar="K", type=int, help="tokens that a picture keeps where a request does not say (all)")
    add(
        "--profile",
        default="ort",
        help="ort: operators of ONNX Runtime; portable: of the ONNX standard only, for other runtimes (default: ort)",
    )
    add("--target", help="tensorrt-llm or tensorrt-edge-llm: write what its builder reads, to be carried to the device")
    add("--device", default="orin", help="with --target: orin, orin-nano or a10g (default: orin)")
    add("--build", action="store_true", help="with --target: run the builder, too, where it is installed")
    add("--json", action="store_true", help="print JSON for programs instead of a table for people")


def run(arguments: argparse.Namespace) -> int:
    """Compile and print what came out. Raises a ``Refusal`` for whatever cannot be done."""
    if arguments.target is not None:
        return _for_builder(arguments)
    options = options_of(arguments)
    out = arguments.out or Path(f"{arguments.model.resolve().name}.bundle")
    if not arguments.replace and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Invalid(f"{out.name} exists; give --replace to replace it, or another --out.", field="out")
    with _progress(quiet=arguments.json) as progress:
        progress("opening the workshop", 0.0)
        from foveola.lower.compile import compile_checkpoint

        bundle = compile_checkpoint(
            arguments.model, out, options, progress, name=arguments.name, replace=arguments.replace
        )
    if arguments.json:
        json.dump(describe(bundle.path), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        _show(describe(bundle.path), bundle.lineage, out)
    return 0


def _for_builder(arguments: argparse.Namespace) -> int:
    out = arguments.out or Path(f"{arguments.model.resolve().name}.{arguments.target}")
    with _progress(quiet=arguments.json) as progress:
        progress("opening the workshop", 0.0)
        from foveola.lower.trtllm import build, export

        finding = export(arguments.model, out, arguments.target, arguments.device, progress, replace=arguments.replace)
    if arguments.json:
        json.dump(finding.to_json(), sys.stdout, indent=1)
        print()
    else:
        print(f"{out.name}: {finding.changed}, mean error {finding.after['mean_relative_error']:.3f}.")
        print(f"Carry it to the device and run build.sh in it ({arguments.device}).")
    if arguments.build:
        build(out, arguments.target)
    return 0


def options_of(arguments: argparse.Namespace) -> CompileOptions:
    """The options that the flags stand for. Raises ``Invalid`` naming the flag."""

    def storage(text: str | None, flag: str) -> Storage | None:
        if text is None:
            return None
        return parse_storage(text, block=arguments.block_size, accuracy_level=arguments.accuracy_level, field=flag)

    overrides: dict[str, Storage] = {}
    for entry in arguments.set:
        pattern, equals, text = entry.partition("=")
        if not (pattern and equals and text):
            raise Invalid(f"--set is {entry!r}; expected PATTERN=STORAGE, as in '*.down_proj=int8'.", field="set")
        overrides[pattern] = parse_storage(
            text, block=arguments.block_size, accuracy_level=arguments.accuracy_level, field="set"
        )
    return CompileOptions.of_precision(
        arguments.precision,
        block=arguments.block_size,
        accuracy_level=arguments.accuracy_level,
        vision=storage(arguments.vision, "vision"),
        decoder=storage(arguments.decoder, "decoder"),
        head=storage(arguments.head, "head"),
        embedding=storage(arguments.embedding, "embedding"),
        overrides=overrides,
        image_px=None if arguments.input_shape is None else parse_input_shape(arguments.input_shape),
        text_length=arguments.seq_len,
        max_length=arguments.max_length,
        evidence_layer=arguments.evidence_layer,
        profile=arguments.profile,
        select_after=arguments.select_after,
        visual_tokens=arguments.visual_tokens,
    )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr that names the step; only plain calls where ``quiet``."""
    if quiet:
        yield lambda step, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda step, share: bar.update(task, description=step, completed=share)


def _show(description: dict[str, Any], lineage: tuple[Finding, ...], out: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{escape(description['name'])}[/bold]  compiled into {escape(str(out))}")
    console.print(f"  model hash  {description['model_hash']}")
    table = Table("file", "bytes", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for file in description["files"]:
        table.add_row(escape(file["name"]), f"{file['bytes']:,}")
    table.add_row("together", f"{description['bytes']:,}")
    console.print(table)
    for finding in lineage:
        console.print(f"  {escape(finding.step)}: {escape(finding.changed)} ({finding.seconds:.1f} s)")
