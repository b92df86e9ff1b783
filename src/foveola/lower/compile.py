"""Checkpoint to bundle, in one call: load, round, export, prove, seal."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import onnx_ir as ir
from torch import nn

from foveola.artifact import Bundle, Checkpoint, Finding, write_bundle
from foveola.artifact.seal import check_name
from foveola.exchange import Invalid
from foveola.family import Family, family_of
from foveola.family.base import Config
from foveola.lower.card import GRAPHS, check_prompt, model_section
from foveola.lower.export import export_decoder, export_embed, export_vision
from foveola.lower.inspect import check_storage, count_operators
from foveola.lower.narrow import halve
from foveola.lower.nbits import QEmbedding
from foveola.lower.options import CompileOptions
from foveola.lower.parity import Subject, check_parity
from foveola.lower.portable import to_portable
from foveola.lower.session import save
from foveola.lower.storage import Rule, Stored, apply, keeping, plan
from foveola.weights.formats import Format
from foveola.weights.lean import lean_model, make_dense
from foveola.weights.quantised import packed_matrices, with_tied

Progress = Callable[[str, float], None]
"""Called with the step that begins and the share of the work that is done (0..1)."""

LEAST_PLACES = 64  # the comparisons with the model need a few dozen
_CARRIED = ("model_card.md", "LICENSE", "LICENSE.txt", "NOTICE")


def compile_checkpoint(
    checkpoint_dir: Path | str,
    out_dir: Path | str,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    *,
    name: str | None = None,
    replace: bool = False,
) -> Bundle:
    """Compile the checkpoint in ``checkpoint_dir`` to a bundle at ``out_dir``, whole or not at all.

    The graphs are held against the model at shapes other than those traced; ``Damaged`` says where they differ by
    more than the tolerance, and nothing is written then. Raises ``Unsupported`` for a family without a record,
    ``Invalid`` for options that do not fit the model, ``FileExistsError`` where ``out_dir`` holds something and
    ``replace`` is False.
    """
    options = options or CompileOptions()
    tell = progress or (lambda step, share: None)
    out = Path(out_dir)
    if not replace and out.is_dir() and any(out.iterdir()):
        # write_bundle would say so, too, but only after a minute of work
        raise FileExistsError(f"{out.name} exists and is not empty; choose another name, or ask to replace it")
    tell("reading the checkpoint", 0.0)
    checkpoint = Checkpoint.open(checkpoint_dir)
    called = _valid_name(name or checkpoint.name)
    family = family_of(checkpoint.config)
    card = model_section(checkpoint, family, options)
    check_prompt(checkpoint, card)
    model, read = lean_model(checkpoint, family)
    if family.sees:
        tower = model.get_submodule(family.parts.vision)
        options = options.for_tower(sum(parameter.numel() for parameter in tower.parameters()))
    tell("rounding the weights", 0.1)
    blocks = family.tower_shape(checkpoint.config).blocks if family.sees else None
    tied = {family.parts.head: family.parts.embedding}
    held = with_tied(packed_matrices(checkpoint, model), checkpoint, tied)
    whole = {id(once): once() for once in held.values()}  # a tied head is the embedding's, in memory as well
    kept = {path: whole[id(once)] for path, once in held.items()}
    planned = keeping(plan(model, family, rules(family, options), blocks), kept)
    make_dense(model, read, but=[path for path, storage in planned.items() if isinstance(storage, Format)])
    stored = apply(model, planned, kept, read)
    graphs, exported = _export(model, checkpoint, family, stored, card["evidence_layer"], options, tell)
    tell("comparing with the model", 0.6)
    subject = Subject(model, family, checkpoint.config, card["vision"], card["evidence_layer"], options)
    proven = check_parity(graphs, subject)
    tell("sealing the bundle", 0.95)
    bundle = write_bundle(
        out,
        name=called,
        files=lambda folder: _write(folder, checkpoint, graphs, card),
        lineage=(*checkpoint.lineage, replace_fields(stored.finding, options=options.to_json()), exported, proven),
        replace=replace,
    )
    tell("done", 1.0)
    return bundle


def _valid_name(name: str) -> str:
    try:
        check_name(name)
    except ValueError as error:
        raise Invalid(f"the bundle's name {error}. Give another with --name.", field="name") from None
    return name


def rules(family: Family, options: CompileOptions) -> list[Rule]:
    """The storage rules that ``options`` stand for: one per part, then the overrides."""
    parts = family.parts
    seeing = [Rule(f"{parts.vision}.*", options.vision)] if family.sees else []
    return [
        Rule(f"{parts.decoder}.*", options.decoder),
        *seeing,  # a tower may lie inside of the decoder's path
        *(Rule(path, options.vision) for path in parts.projector),
        Rule(parts.head, options.head),
        Rule(parts.embedding, options.embedding),
        *(Rule(pattern, storage) for pattern, storage in options.overrides.items()),
    ]


def _export(
    model: nn.Module,
    checkpoint: Checkpoint,
    family: Family,
    stored: Stored,
    evidence_layer: int | None,
    options: CompileOptions,
    tell: Progress,
) -> tuple[dict[str, ir.Model], Finding]:
    start = time.perf_counter()
    config, packed = checkpoint.config, stored.packed
    table = packed.get(family.parts.embedding)
    tell("exporting the vision tower", 0.15)
    graphs: dict[str, ir.Model] = {}
    if family.sees:
        graphs["vision"] = export_vision(model, family, config, packed, options.select_after)
    tell("exporting the embedding", 0.3)
    deep = family.decoder_shape(config).deepstack
    graphs["embed"] = export_embed(model, family, None if table is None else QEmbedding(table), deep)
    tell("exporting the decoder", 0.35)
    graphs["decoder"] = export_decoder(
        model,
        family,
        config,
        packed,
        evidence_layer,
        weighs_keys=options.select_after is not None,
        places=places_of(family, config, options),
    )
    check_storage(graphs, family, stored)
    if options.profile == "portable":
        graphs = {role: to_portable(graph) for role, graph in graphs.items()}
    saved = sum(halve(graph) for graph in graphs.values())
    counts = {f"{name}_nodes": sum(count_operators(graph).values()) for name, graph in graphs.items()}
    finding = Finding(
        step="lower.export",
        changed=f"{len(graphs)} graphs with dynamic shapes; {saved} bytes saved by constants that 16 bits hold exactly",
        after={**counts, "opset": graphs["decoder"].opset_imports[""]}
        | ({} if evidence_layer is None else {"evidence_layer": evidence_layer}),
        seconds=time.perf_counter() - start,
    )
    return graphs, finding


def places_of(family: Family, config: Config, options: CompileOptions) -> int | None:
    """How long the longest slot is, where every token's position is its place in it: where no picture stands between
    words, whose tokens may share positions or be left out. None elsewhere, and in graphs of standard operators."""
    shape = family.decoder_shape(config)
    if family.sees or shape.axes > 1 or options.profile != "ort":
        return None
    return max(int(family.text_section(config, options.max_length)["max_length"]), LEAST_PLACES)


def _write(folder: Path, checkpoint: Checkpoint, graphs: dict[str, ir.Model], card: dict[str, Any]) -> None:
    for role, graph in graphs.items():
        save(graph, folder / GRAPHS[role])
    (folder / "model.json").write_text(json.dumps(card, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(checkpoint.file("tokenizer.json"), folder / "tokenizer.json")
    for name in _CARRIED:
        if (checkpoint.path / name).is_file():
            shutil.copyfile(checkpoint.path / name, folder / name)
