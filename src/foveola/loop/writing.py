"""A repaired tower on disk: a checkpoint that differs from its source in the tower only, and a patch for a server."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from foveola.artifact import Checkpoint, Finding, write_checkpoint
from foveola.artifact.checkpoint import SEAL_FILE
from foveola.exchange import Damaged, Unsupported
from foveola.weights.store import read_tensor

TOWER = "visual."
PATCH_PATH = "visual"


def check_plain(checkpoint: Checkpoint) -> None:
    """Raises ``Unsupported`` where the tower is not stored as plain floating point numbers."""
    for name, info in checkpoint.tensors.items():
        if TOWER in name and info.dtype not in ("F16", "F32", "BF16"):
            raise Unsupported(
                f"{checkpoint.name} has a vision tower of packed weights ({info.dtype}); repair the checkpoint that it "
                "was made of, and compress the result again."
            )


def write_repaired(
    source: Checkpoint, tower: Mapping[str, Tensor], out: Path, *, name: str, finding: Finding
) -> Checkpoint:
    """``source`` with the weights of ``tower`` at ``out``, its lineage one line longer, replacing what is there.

    Names and types of tensors stay those of the source; everything behind the tower stays to the bit. Raises
    ``Damaged`` where the source has other tensors in its tower.
    """
    own = {key: key.partition(TOWER)[2] for key in source.tensors if TOWER in key}
    if set(own.values()) != set(tower):
        raise Damaged(f"{source.name} has {len(own)} tensors in its vision tower; expected {len(tower)}.")

    def fill(folder: Path) -> None:
        for file in source.weight_files:
            tensors = {}
            for key, info in source.tensors.items():
                if info.file == file:
                    stored = read_tensor(source, key)
                    tensors[key] = tower[own[key]].to(stored.dtype).contiguous() if key in own else stored
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, folder / file, {"format": "pt"})
        for path in sorted(source.path.rglob("*")):
            relative = path.relative_to(source.path)
            if path.is_file() and str(relative) not in (*source.weight_files, SEAL_FILE):
                (folder / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / relative)

    return write_checkpoint(out, name=name, files=fill, lineage=(*source.lineage, finding), replace=True)


def write_patch(checkpoint: Checkpoint, path: Path) -> int:
    """The tower's tensors of ``checkpoint``, named from the tower on, as ``foveola patch`` sends them; their number."""
    tensors = {key.partition(TOWER)[2]: read_tensor(checkpoint, key) for key in checkpoint.tensors if TOWER in key}
    staged = path.with_suffix(".partial")
    save_file({name: tensor.to(torch.float32).contiguous() for name, tensor in tensors.items()}, staged)
    staged.replace(path)
    return len(tensors)
