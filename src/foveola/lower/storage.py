"""Which module's weights are stored how: the plan, and applying it to a loaded model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from foveola.artifact import Finding
from foveola.exchange import Invalid
from foveola.family import Family
from foveola.weights.formats import Format, Storage
from foveola.weights.held import hold_packed
from foveola.weights.lean import Read
from foveola.weights.matrix import as_matrix
from foveola.weights.packed import ROWS, Packed, pack_rows


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules whose path matches ``pattern`` (shell wildcards) are stored as ``storage``; the last match counts."""

    pattern: str
    storage: Storage


@dataclass(frozen=True, slots=True)
class Stored:
    """A model after ``apply``: its own weights now equal what will be stored, and ``packed`` holds the packed ones."""

    packed: Mapping[str, Packed]
    plan: Mapping[str, Storage]
    finding: Finding


def plan(model: nn.Module, family: Family, rules: Sequence[Rule], blocks: int | None = None) -> dict[str, Storage]:
    """Path -> storage, for every matrix that the graphs use: of the tower, its first ``blocks`` (None: all).

    Raises ``Invalid`` for a rule that matches nothing.
    """
    known = family.parts
    parts = [part for part in (known.vision, known.decoder, known.head, *known.projector) if part]
    unused = _blocks_from(model, family, blocks)
    paths = [
        path
        for path, module in model.named_modules()
        if path == known.embedding
        or (
            isinstance(module, (nn.Linear, nn.Conv2d, nn.Conv3d))
            and any(path == part or path.startswith(f"{part}.") for part in parts)
            and not path.startswith(unused)
        )
    ]
    planned: dict[str, Storage] = dict.fromkeys(paths, "fp32")
    for rule in rules:
        matched = [path for path in paths if fnmatchcase(path, rule.pattern)]
        if not matched:
            raise Invalid(
                f"the pattern {rule.pattern!r} matches no module; modules have names like "
                f"{', '.join(paths[:: max(1, len(paths) // 4)][:4])}. Correct the pattern or leave it out.",
                field="rules",
            )
        planned |= dict.fromkeys(matched, rule.storage)
    return planned


def _blocks_from(model: nn.Module, family: Family, first: int | None) -> tuple[str, ...]:
    """Beginnings of the paths of the tower's blocks from ``first`` on."""
    if first is None or not family.sees:
        return ()
    root = f"{family.parts.vision}.{family.tower.blocks}"
    count = len(list(model.get_submodule(root).children()))
    return tuple(f"{root}.{index}." for index in range(first, count))


def keeping(planned: Mapping[str, Storage], kept: Mapping[str, Packed]) -> dict[str, Storage]:
    """``planned`` with bits and block of the matrices that the checkpoint holds packed (``kept``).

    How they are multiplied stays as it was planned; fp32 and fp16 ask for them unpacked.
    """
    found = dict(planned)
    for path, packed in kept.items():
        storage = found.get(path)
        if isinstance(storage, Format):
            found[path] = replace(storage, bits=packed.format.bits, block=packed.format.block)
    return found


@torch.no_grad()
def apply(
    model: nn.Module,
    planned: Mapping[str, Storage],
    kept: Mapping[str, Packed] | None = None,
    read: Read | None = None,
) -> Stored:
    """Round the weights of ``model``, in place, to what ``planned`` stores of them.

    Matrices that the checkpoint holds packed (``kept``) are stored code for code, and not rounded again. Afterwards
    the model is the reference for the exported graphs: they must compute what it computes. With ``read`` (``lean``)
    weights that the model lacks are read one by one, and those stored packed are only held packed: the model is never
    in memory whole.
    """
    kept = kept or {}
    start = time.perf_counter()
    packed: dict[str, Packed] = {}
    before = after = 0
    squared_error = squared = 0.0
    for path, storage in planned.items():
        module = model.get_submodule(path)
        if storage == "fp32":
            before += 4 * _elements(module)
            after += 4 * _elements(module)
            continue
        if isinstance(storage, Format) and path in kept:
            packed[path] = replace(kept[path], format=storage)
            exact = rounded = packed[path].dequantised()
        else:
            exact = _matrix(module, path, read)
            if isinstance(storage, Format):
                packed[path] = pack_rows(exact, storage)
            rounded = packed[path].dequantised() if path in packed else exact.half().float()
        before += 4 * exact.numel()
        after += packed[path].nbytes if path in packed else 2 * exact.numel()
        squared += _squares(exact)
        squared_error += 0.0 if exact is rounded else _squares(exact, rounded)
        if read is not None and path in packed:
            hold_packed(module, packed[path])
        else:
            _replace(module, rounded)
    counts = Counter(
        f"{storage}{' as packed' * (path in kept and path in packed)}" for path, storage in planned.items()
    )
    finding = Finding(
        step="lower.round",
        changed="weights rounded to nearest: " + ", ".join(f"{n} x {name}" for name, n in sorted(counts.items())),
        before={"weight_bytes": before, "relative_weight_error": 0.0},
        after={"weight_bytes": after, "relative_weight_error": (squared_error / max(squared, 1e-30)) ** 0.5},
        seconds=time.perf_counter() - start,
    )
    return Stored(packed, dict(planned), finding)


def _elements(module: nn.Module) -> int:
    """Of the matrix that is stored: of a kernel over time there is one frame."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.numel() // (weight.shape[2] if isinstance(module, nn.Conv3d) else 1)


def _squares(exact: Tensor, rounded: Tensor | None = None) -> float:
    """Sum of the squares of a matrix, or of its difference from another, some rows at a time."""
    total = 0.0
    for begin in range(0, exact.shape[0], ROWS):
        rows = exact[begin : begin + ROWS]
        total += float((rows if rounded is None else rounded[begin : begin + ROWS] - rows).square().sum())
    return total


def _matrix(module: nn.Module, path: str, read: Read | None) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    if weight.is_meta and read is not None:
        return as_matrix(read(f"{path}.weight"))
    return as_matrix(weight.detach())


def _replace(module: nn.Module, rounded: Tensor) -> None:
    """A parameter of its own: where head and embedding were tied, each keeps its own rounding from here on."""
    if isinstance(module, nn.Conv3d):
        frames = module.weight.shape[2]
        kernel = rounded.view(module.weight.shape[0], module.weight.shape[1], 1, *module.weight.shape[3:])
        rounded = (kernel / frames).repeat(1, 1, frames, 1, 1)
    rounded = rounded.reshape(module.weight.shape)  # type: ignore[arg-type]
    module.weight = nn.Parameter(rounded, requires_grad=False)
