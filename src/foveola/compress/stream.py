"""A checkpoint rewritten block by block: never more than one block in memory, every finished block kept.

A block is one element of the model's lists of layers (``model.visual.blocks.3``); what lies outside of them goes
matrix by matrix. Each becomes one shard of the new checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from foveola.artifact import Checkpoint
from foveola.artifact.safetensors import read_header
from foveola.compress.steps import Progress, keep_side_files
from foveola.weights.formats import Format
from foveola.weights.packed import Packed
from foveola.weights.skeleton import stored_names
from foveola.weights.store import PACKED, read_tensor


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a block: its tensors by the model's names, entries of ``foveola_packed``, figures to remember."""

    tensors: Mapping[str, Tensor]
    packed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


Change = Callable[[str, dict[str, Tensor]], Changed]
"""(path of the block, its tensors by the model's names, in the dtype of the file) -> what becomes of them."""


def blocks_of(model: nn.Module) -> list[str]:
    """Paths of the elements of the outermost lists of layers, in order."""
    lists = [path for path, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [p for p in lists if not any(p.startswith(f"{other}.") for other in lists)]
    return [f"{p}.{index}" for p in outermost for index in range(len(list(model.get_submodule(p).children())))]


def grouped(blocks: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Block -> names of its tensors, for all of ``names``; a tensor outside of every block stands under its module."""
    groups: dict[str, list[str]] = {}
    for name in names:
        home = next((b for b in blocks if name.startswith(f"{b}.")), name.rpartition(".")[0])
        groups.setdefault(home, []).append(name)
    return groups


def rewrite(
    source: Checkpoint,
    model: nn.Module,
    folder: Path,
    journal: Path,
    change: Change,
    tell: Progress,
    *,
    config: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Write ``source``, changed block by block, into ``folder``; the figures of every block, in order.

    Blocks of ``order`` come first and in that order. Blocks that ``journal`` holds from an earlier run are taken from
    there. ``config`` are entries that replace those of config.json.
    """
    names = stored_names(model, source)
    groups = grouped([*order, *(block for block in blocks_of(model) if block not in set(order))], list(names))
    in_order = [*order, *(block for block in groups if block not in set(order))]
    packed: dict[str, Any] = dict(source.config.get(PACKED, {}))
    figures: list[dict[str, Any]] = []
    shards: list[Path] = []
    for number, block in enumerate(in_order):
        tell(block, number / len(in_order))
        shard = journal / f"{number:05d}.safetensors"
        note = journal / f"{number:05d}.json"
        if not note.is_file():
            changed = change(block, {name: read_tensor(source, names[name]) for name in groups[block]})
            _keep(changed, shard, note)
        told = json.loads(note.read_text(encoding="utf-8"))
        packed |= told["packed"]
        figures.append(told["figures"])
        shards.append(shard)
    held = _assemble(shards, folder)
    left = {path: entry for path, entry in packed.items() if f"{path}.weight_values" in held}
    entries = {**source.config, **(config or {}), PACKED: left}
    if not left:
        del entries[PACKED]
    (folder / "config.json").write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    keep_side_files(source, folder)
    return figures


def kept_parameters(journal: Path, number: int) -> dict[str, Tensor] | None:
    """The tensors of block ``number`` as an earlier call left them in ``journal``, packed ones unpacked to fp32.

    Matrices that are packed come as [N, K]. None where the block is not done.
    """
    note, shard = journal / f"{number:05d}.json", journal / f"{number:05d}.safetensors"
    if not note.is_file():
        return None
    tensors = load_file(shard)
    for path, entry in json.loads(note.read_text(encoding="utf-8"))["packed"].items():
        form = Format(entry["bits"], entry["block"])
        parts = [tensors.pop(f"{path}.weight_{part}") for part in ("values", "scales", "zeros")]
        tensors[f"{path}.weight"] = Packed(parts[0], parts[1].float(), parts[2], entry["inner"], form).dequantised()
    return {name: tensor.float() for name, tensor in tensors.items()}


def _keep(changed: Changed, shard: Path, note: Path) -> None:
    """The note is written last and in one step: where it is, the shard is whole."""
    save_file({name: tensor.contiguous() for name, tensor in changed.tensors.items()}, shard, {"format": "pt"})
    staged = note.with_suffix(".partial")
    told = {"packed": {p: dict(e) for p, e in changed.packed.items()}, "figures": dict(changed.figures)}
    staged.write_text(json.dumps(told), encoding="utf-8")
    os.replace(staged, note)


def _assemble(shards: Sequence[Path], folder: Path) -> set[str]:
    """Move the shards into place and write their index; the names of all tensors."""
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, 1):
        called = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        os.replace(shard, folder / called)
        for name, info in read_header(folder, called).items():
            weight_map[name] = called
            total += info.bytes
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return set(weight_map)
