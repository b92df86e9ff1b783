"""Which constants of a graph come from which parameters of the model: written into the graph, for whoever patches it.

The engine can replace the weights of a sub-module while it serves, without torch and without the workshop
(``foveola.engine.patch``). For that every graph carries in its metadata, under ``foveola.weights``, the table that is
described in ``foveola.engine.placing``.
"""

from __future__ import annotations

import json
from typing import Any

import onnx_ir as ir
from torch import nn

from foveola.lower.dense import Dense
from foveola.lower.nbits import QEmbedding, QLinear

METADATA = "foveola.weights"


def note_sources(graph: ir.Model, traced: nn.Module, model: nn.Module) -> None:
    """Write the table for ``graph``, which is ``traced`` exported, itself made of parts of ``model``."""
    graph.metadata_props[METADATA] = json.dumps(sources_of(traced, model), sort_keys=True)


def sources_of(traced: nn.Module, model: nn.Module) -> dict[str, dict[str, Any]]:
    """Name of a constant -> its kind, the paths that it comes from, and how it is stored.

    Layers know their modules (``dense.layer``). What else is a parameter of the model is one that the traced module
    shares its memory with.
    """
    entries: dict[str, dict[str, Any]] = {}
    known: dict[int, str] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        known.setdefault(parameter.data_ptr(), path)
    tied = _tied(model)
    layers: list[str] = []
    for path, module in traced.named_modules():
        paths: tuple[str, ...] = getattr(module, "sources", ())
        if not paths or not isinstance(module, (Dense, QLinear)):
            continue
        layers.append(path)
        own = f"{path}." if path else ""
        packed = module.packed if isinstance(module, Dense) else module.packed()
        form = "fp32" if packed is None else str(packed.format)
        entries[f"{own}weight"] = {"kind": "matrix", "from": list(paths), "format": form}
        if paths == tuple(tied):
            entries[f"{own}weight"]["tied"] = list(tied.values())
        if module.bias is not None:
            biased = [each for each in paths if getattr(model.get_submodule(each), "bias", None) is not None]
            if len(biased) == len(paths):
                entries[f"{own}bias"] = {"kind": "bias", "from": list(paths), "format": "fp32"}
    for name, tensor in (*traced.named_buffers(), *traced.named_parameters()):
        path = name.rpartition(".")[0]
        if path not in layers and not isinstance(traced.get_submodule(path), QEmbedding) and tensor.numel():
            source = known.get(tensor.data_ptr())
            if source is not None:
                entries[name] = {"kind": "tensor", "from": [source], "format": "fp32"}
    return entries


def _tied(model: nn.Module) -> dict[str, str]:
    """Path of the head -> path of the embedding whose weights it shares; nothing where it has its own."""
    if not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return {}
    paths = {id(module): path for path, module in model.named_modules()}
    ends: Any = model
    head, table = ends.get_output_embeddings(), ends.get_input_embeddings()
    return {} if head is None or table is None else {paths[id(head)]: paths[id(table)]}
