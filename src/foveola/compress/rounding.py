"""``round``: every weight to the nearest that its block of few bits has. The baseline of everything else."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveola.artifact import Checkpoint, Finding
from foveola.compress.steps import Workbench, step
from foveola.compress.stream import Changed, rewrite
from foveola.exchange import Invalid
from foveola.family import family_of
from foveola.weights.formats import Format, parse_storage
from foveola.weights.matrix import as_matrix
from foveola.weights.packed import ROWS, Packed, concatenated, pack
from foveola.weights.patterns import matched_any
from foveola.weights.skeleton import skeleton, stored_names
from foveola.weights.store import PACKED, packed_entry, packed_tensors


@step("round")
@dataclass(frozen=True, slots=True)
class Round:
    """Stores the matrices that ``patterns`` match as ``storage`` (int4/32, int8/128, fp16 ...)."""

    patterns: tuple[str, ...] = ("*",)
    storage: str = "int4/32"

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Round block by block. Raises ``Invalid`` for a pattern that matches nothing."""
        start = time.perf_counter()
        storage = parse_storage(self.storage, field="storage")
        if storage == "fp32":
            raise Invalid("storage is fp32, which rounds nothing; expected fp16, int8 or int4.", field="storage")
        model = skeleton(source, family_of(source.config))
        chosen = set(matched_any(self.patterns, matrices(model, source)))

        def change(block: str, tensors: dict[str, Tensor]) -> Changed:
            return rounded_tensors(tensors, chosen, storage)

        figures = rewrite(source, model, folder, bench.journal, change, bench.tell)
        before, after, error, size = (sum(f[key] for f in figures) for key in ("before", "after", "error", "size"))
        return Finding(
            step="compress.round",
            changed=f"{len(chosen)} matrices rounded to the nearest of {self.storage}",
            before={"weight_bytes": before, "relative_weight_error": 0.0},
            after={"weight_bytes": after, "relative_weight_error": (error / max(size, 1e-30)) ** 0.5},
            seconds=time.perf_counter() - start,
        )


def matrices(model: torch.nn.Module, source: Checkpoint) -> list[str]:
    """Paths of the modules whose weight is a matrix, a table or a kernel and is stored unpacked, in order."""
    stored = stored_names(model, source)
    done = source.config.get(PACKED, {})
    return [
        name.removesuffix(".weight")
        for name in model.state_dict()
        if name.endswith(".weight") and name in stored and len(source.tensors[stored[name]].shape) >= 2
        and name.removesuffix(".weight") not in done
    ]  # fmt: skip


def rounded_tensors(tensors: dict[str, Tensor], chosen: set[str], storage: Any) -> Changed:
    """Tensors of a block, those of the modules ``chosen`` rounded; figures: bytes and squared errors of the weights."""
    kept: dict[str, Tensor] = {}
    packed: dict[str, dict[str, int]] = {}
    before = after = 0
    error = size = 0.0
    for name, tensor in tensors.items():
        path = name.removesuffix(".weight")
        before += tensor.nbytes
        if path not in chosen:
            kept[name] = tensor
            after += tensor.nbytes
            continue
        pieces = [_rounded_rows(rows, storage) for rows in torch.split(tensor, ROWS)]
        error += sum(piece.error for piece in pieces)
        size += sum(piece.size for piece in pieces)
        if isinstance(storage, Format):
            result = concatenated([piece.stored for piece in pieces if isinstance(piece.stored, Packed)])
            kept |= packed_tensors(path, result)
            packed[path] = packed_entry(result)
            after += result.nbytes
        else:
            kept[name] = torch.cat([piece.stored for piece in pieces if isinstance(piece.stored, Tensor)])
            after += kept[name].nbytes
    return Changed(kept, packed, {"before": before, "after": after, "error": error, "size": size})


@dataclass(frozen=True, slots=True)
class _Piece:
    stored: Packed | Tensor
    error: float
    size: float


def _rounded_rows(rows: Tensor, storage: Any) -> _Piece:
    """Some rows at a time: an embedding in fp32 would be several times what it is on disk."""
    exact = as_matrix(rows.float())
    if isinstance(storage, Format):
        packed = pack(exact, storage)
        return _Piece(packed, float((packed.dequantised() - exact).square().sum()), float(exact.square().sum()))
    half = rows.half()
    return _Piece(half, float((as_matrix(half.float()) - exact).square().sum()), float(exact.square().sum()))
