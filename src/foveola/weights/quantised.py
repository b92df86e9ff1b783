"""Every matrix that a checkpoint holds packed, in whichever form, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from foveola.artifact import Checkpoint
from foveola.weights.foreign import read_foreign, suffix_of
from foveola.weights.packed import Packed
from foveola.weights.skeleton import stored_names
from foveola.weights.store import packed_formats, read_packed, read_tensor

Readers = dict[str, Callable[[], Packed]]
"""Path of a module -> what reads its matrix."""


def packed_matrices(checkpoint: Checkpoint, model: nn.Module) -> Readers:
    """What ``checkpoint``, whose model or skeleton is ``model``, holds packed; nothing is read yet.

    Raises ``Unsupported`` for a form that is not read, ``Damaged`` for a malformed one; readers raise the same.
    """
    own = packed_formats(checkpoint.config)
    if own:
        return {path: _own(checkpoint, path, *entry) for path, entry in own.items()}
    suffix = suffix_of(checkpoint.config)
    if suffix is None:
        return {}
    names = stored_names(model, checkpoint)
    paths = [name[: -len(suffix) - 1] for name in names if name.endswith(f".{suffix}")]
    return {path: _foreign(checkpoint, path, names) for path in paths}


def with_tied(matrices: Readers, checkpoint: Checkpoint, tied: Mapping[str, str]) -> Readers:
    """``matrices`` and those (the head) that are another (the embedding) where the checkpoint has none of their own."""
    return matrices | {
        path: matrices[other]
        for path, other in tied.items()
        if other in matrices and path not in matrices and f"{path}.weight" not in checkpoint.tensors
    }


def _own(checkpoint: Checkpoint, path: str, *entry: object) -> Callable[[], Packed]:
    return lambda: read_packed(checkpoint, path, *entry)  # type: ignore[arg-type]


def _foreign(checkpoint: Checkpoint, path: str, names: Mapping[str, str]) -> Callable[[], Packed]:
    def read(suffix: str) -> Tensor:
        return read_tensor(checkpoint, names.get(f"{path}.{suffix}", f"{path}.{suffix}"))

    return lambda: read_foreign(checkpoint.config, path, read, lambda suffix: f"{path}.{suffix}" in names)
