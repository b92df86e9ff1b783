"""``foveola doctor``: whether a checkpoint is supported, what of it would be used, and what stands in the way.

Reads JSON files, the tokenizer and the headers of the weights; loads no weights and no torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from foveola.artifact import Checkpoint
from foveola.exchange import Refusal
from foveola.family import Family, family_of
from foveola.intake.geometries import geometry_of
from foveola.lower.card import check_prompt, model_section
from foveola.lower.options import CompileOptions

Verdict = Literal["good", "note", "bad"]
SUPPORTED, UNSUPPORTED = 0, 1
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: ``verdict`` good, note (works, worth knowing) or bad (would be refused), and why."""

    what: str
    verdict: Verdict
    says: str


def examine(path: Path) -> tuple[Check, ...]:
    """Look at the checkpoint in ``path``. Never raises for what is wrong with it: that is what it tells."""
    try:
        checkpoint = Checkpoint.open(path)
    except Refusal as refusal:
        return (Check("files", "bad", refusal.message),)
    checks = [Check("files", "good", _files(checkpoint))]
    try:
        family = family_of(checkpoint.config)
    except Refusal as refusal:
        return (*checks, Check("family", "bad", refusal.message))
    checks.append(Check("family", "good", f"{family.model_type}, read as {family.native or family.model_class}"))
    for what, look in _LOOKS.items():
        try:
            checks += [Check(what, verdict, says) for verdict, says in look(checkpoint, family)]
        except Refusal as refusal:
            checks.append(Check(what, "bad", refusal.message))
    return tuple(checks)


def _files(checkpoint: Checkpoint) -> str:
    count = len(checkpoint.weight_files)
    files = f"{count} safetensors file{'s' if count > 1 else ''}"
    return f"{files}, {len(checkpoint.tensors)} tensors, {checkpoint.parameters / 1e6:,.1f} M parameters"


Says = Iterator[tuple[Verdict, str]]


def _decoder(checkpoint: Checkpoint, family: Family) -> Says:
    shape = family.decoder_shape(checkpoint.config)
    said = (
        f"{shape.layers} layers of {shape.hidden}, {shape.heads} heads over {shape.kv_heads} of {shape.head_dim}, "
        f"positions with {shape.axes} {'axes' if shape.axes > 1 else 'axis'}"
    )
    if shape.experts:
        said += f", {shape.experts_per_token} of {shape.experts} experts"
    yield "good", said
    if shape.experts:
        yield "note", "experts are stored in fp32, whatever precision is asked for"
    longest = family.text_section(checkpoint.config, 1 << 30)["max_length"]
    yield "good", f"reads up to {longest} tokens (choose a slot with --max-length)"


def _tower(checkpoint: Checkpoint, family: Family) -> Says:
    if not family.sees:
        yield "note", "none: this model reads text only"
        return
    shape = family.tower_shape(checkpoint.config)
    where = f"square tiles of {shape.tile} px" if shape.tile else "patches of pictures of any size"
    yield "good", f"{where}, {shape.heads} heads of {shape.head_dim}, {shape.merge_size**2} patches to a visual token"
    if shape.deepstack:
        yield "good", f"features of {len(shape.deepstack)} more blocks go into the decoder's first layers"


def _pictures(checkpoint: Checkpoint, family: Family) -> Says:
    if not family.sees:
        return
    preprocessor = checkpoint.side_file("preprocessor")
    if preprocessor is None:
        yield "note", "preprocessor_config.json is missing; the family's usual numbers are used"
    vision = family.vision_section(checkpoint.config, preprocessor or {})
    geometry = geometry_of({"geometry": family.geometry, "vision": vision})
    assert geometry is not None
    tokens = {size: sum(view.use.tokens for view in geometry.fit([size])) for size in ((640, 480), (1920, 1080))}
    counted = ", ".join(f"{width} x {height} px: {count} tokens" for (width, height), count in tokens.items())
    yield "good", f"geometry {family.geometry}; a picture of {counted}"


def _prompt(checkpoint: Checkpoint, family: Family) -> Says:
    if checkpoint.chat_template() is None:
        yield "bad", "there is no chat template: neither chat_template.jinja, nor one in tokenizer_config.json."
        return
    card = model_section(checkpoint, family, CompileOptions())
    check_prompt(checkpoint, card)
    tokens = card["tokens"]
    ends = ", ".join(tokens["eos"] or ())
    yield "good", f"picture token {tokens['image']!r}, answers end with {ends}" if family.sees else f"ends with {ends}"
    if not tokens["eos"]:
        yield "note", "no token ends an answer; every answer goes on to max_tokens"


def _memory(checkpoint: Checkpoint, family: Family) -> Says:
    shape = family.decoder_shape(checkpoint.config)
    weights = checkpoint.parameters / _GIB
    token = 2 * 4 * shape.layers * shape.kv_heads * shape.head_dim
    # Measured on 0.01 and 2.2 B parameters (bench/k1_scale.py); experts are loaded whole.
    compiling = 0.6 + (14 if shape.experts else 2.2) * weights
    yield "good", f"compiling to int4 takes about {compiling:.1f} GiB; serving that about {0.2 + 1.5 * weights:.1f} GiB"
    yield "good", f"and {token / 1024:.0f} KiB of keys and values per token of context"


def _weights(checkpoint: Checkpoint, family: Family) -> Says:
    quantised = checkpoint.config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else None
        yield "note", f"the weights are quantised already ({method or 'unknown method'})"
    mapped = checkpoint.config.get("auto_map")
    code = sorted(map(str, mapped)) if isinstance(mapped, dict) else []
    if code:
        yield "note", f"the code that comes with it ({', '.join(code)}) is never run"


_LOOKS: dict[str, Callable[[Checkpoint, Family], Says]] = {
    "decoder": _decoder,
    "vision": _tower,
    "pictures": _pictures,
    "prompt": _prompt,
    "weights": _weights,
    "memory": _memory,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="a checkpoint, in the Hugging Face layout")
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of a table for people")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; 0 where the checkpoint is supported, 1 where it is not."""
    checks = examine(arguments.directory)
    supported = all(check.verdict != "bad" for check in checks)
    if arguments.json:
        report: dict[str, Any] = {"supported": supported, "checks": [asdict(check) for check in checks]}
        json.dump(report, sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        _show(checks, supported, arguments.directory.resolve().name)
    return SUPPORTED if supported else UNSUPPORTED


def _show(checks: tuple[Check, ...], supported: bool, name: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    colours = {"good": "green", "note": "yellow", "bad": "red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        mark = f"[{colours[check.verdict]}]{check.verdict}[/]"
        table.add_row(mark, escape(check.what), escape(check.says))
    console.print(table)
    if supported:
        console.print(f"supported: foveola compile --model {escape(name)}")
    else:
        console.print("not supported as it is; the lines marked bad say why.")
