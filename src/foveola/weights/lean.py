"""A checkpoint as a model of which nothing is in memory yet, and what reads its parameters when they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from foveola.artifact import Checkpoint
from foveola.exchange import Damaged, Unsupported
from foveola.family import Family
from foveola.weights.loading import load
from foveola.weights.quantised import packed_matrices
from foveola.weights.reader import Parameters
from foveola.weights.skeleton import skeleton, stored_names

Read = Callable[[str], Tensor]
"""Name of a parameter -> its values, fp32."""


def lean_model(checkpoint: Checkpoint, family: Family) -> tuple[nn.Module, Read]:
    """The model without weights (``make_dense`` gives them), and its reader.

    A checkpoint whose tensors are not the model's one by one is loaded whole: then nothing is left to read. Raises
    ``Damaged`` where tensors are missing or have other sizes than config.json says.
    """
    model = skeleton(checkpoint, family)
    try:
        stored = stored_names(model, checkpoint)
    except Unsupported:
        model = load(checkpoint, family)
        return model, model.get_parameter
    head, table = (f"{path}.weight" for path in (family.parts.head, family.parts.embedding))
    tied = {head: table} if model.get_parameter(head) is model.get_parameter(table) else {}
    packed = {f"{path}.weight" for path in packed_matrices(checkpoint, model)}
    _check(model, checkpoint, stored, packed, tied)
    if tied and head in stored.keys() | packed:  # config.json says one, the checkpoint holds two
        own = nn.Parameter(torch.empty_like(model.get_parameter(head)), requires_grad=False)
        model.get_submodule(family.parts.head).register_parameter("weight", own)
    parameters = Parameters(checkpoint, model)

    def read(name: str) -> Tensor:
        return parameters(tied[name] if name in tied and name not in parameters else name)

    return model, read


@torch.no_grad()
def make_dense(model: nn.Module, read: Read, *, but: Iterable[str] = ()) -> None:
    """Give ``model``, in place, every parameter that it lacks except the weights of the modules ``but``.

    Parameters that are one object (a tied head) stay one.
    """
    left = {f"{path}.weight" for path in but}
    given: dict[int, nn.Parameter] = {}
    for path, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            full = f"{path}.{name}" if path else name
            if not parameter.is_meta or full in left:
                continue
            if id(parameter) not in given:
                given[id(parameter)] = nn.Parameter(read(full), requires_grad=False)
            module.register_parameter(name, given[id(parameter)])


def _check(
    model: nn.Module, checkpoint: Checkpoint, stored: dict[str, str], packed: set[str], tied: dict[str, str]
) -> None:
    """That every parameter is there, in the size that config.json says."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    lacking = sorted(name for name in shapes if not {name, tied.get(name, name)} & (stored.keys() | packed))
    if lacking:
        raise Damaged(
            f"{checkpoint.weight_files[0]} lacks {len(lacking)} tensors that config.json asks for, {lacking[0]} among "
            "them. The checkpoint is incomplete, or its config.json belongs to another."
        )
    other = sorted(
        name for name, size in shapes.items() if name in stored and checkpoint.tensors[stored[name]].shape != size
    )
    if other:
        raise Damaged(
            f"{checkpoint.weight_files[0]} has {len(other)} tensors of other sizes than config.json says, {other[0]} "
            "among them. The config.json belongs to another checkpoint."
        )
