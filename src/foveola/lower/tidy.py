"""Last touches on a traced graph: stable shapes at its border, nothing superfluous inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import (
    ClearMetadataAndDocStringPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
    RemoveUnusedOpsetsPass,
)

Dimensions = Mapping[str, Sequence[int | str | None]]
"""Name of an input or output -> its sizes: a number, a name, or None for what the trace found."""


def tidy(model: ir.Model, border: Dimensions) -> ir.Model:
    """Clean ``model`` in place and return it.

    Shapes of inner values go away: those that the trace wrote for operators of ONNX Runtime are guesses (a cache is
    as long as the slot, or as the text), and the runtime plans memory by them. It infers its own.
    """
    _drop_unused_outputs(model.graph)
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.name is not None and value.shape is not None
        value.shape = ir.Shape(
            was if now is None else now for was, now in zip(value.shape, border[value.name], strict=True)
        )
    kept = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph:
        for value in node.outputs:
            if id(value) not in kept:
                value.shape = None
                value.type = None
    for step in (
        RemoveUnusedNodesPass(),
        DeduplicateInitializersPass(),
        ClearMetadataAndDocStringPass(),
        RemoveUnusedOpsetsPass(),
    ):
        step(model)
    model.producer_name, model.producer_version = "foveola", None
    return model


def _drop_unused_outputs(graph: ir.Graph) -> None:
    """An output without a name is not computed."""
    outputs = {id(value) for value in graph.outputs}
    for node in graph:
        if node.op_type == "SkipSimplifiedLayerNormalization":
            for value in node.outputs[1:]:
                if not value.uses() and id(value) not in outputs:
                    value.name = ""
