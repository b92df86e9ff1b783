"""From a module made for tracing to an ONNX graph with names of our own at its border."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir
import torch
from torch import nn

from foveola.lower import operators
from foveola.lower.dense import Dense
from foveola.lower.narrow import expand_at_load
from foveola.lower.sources import note_sources
from foveola.lower.tidy import tidy


def traced(
    graph: nn.Module,
    example: tuple[object, ...],
    dynamic: tuple[object, ...],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dimensions: dict[str, list[int | str | None]],
    results: dict[str, list[int | str | None]],
    model: nn.Module | None = None,
) -> ir.Model:
    """``graph`` as an ONNX model with these names, traced on ``example`` with ``dynamic`` sizes.

    ``dimensions`` and ``results`` name the sizes at its border; None stands for what the trace found. With ``model``,
    of which ``graph`` is made, it says which constants are which of its parameters (``sources``).
    """
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph.eval(),
            example,
            dynamo=True,
            dynamic_shapes=dynamic,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=operators.OPSET,
            optimize=True,
            verbose=False,
        )
    assert program is not None
    exported = tidy(program.model, dimensions | results)
    modules = graph.named_modules()
    expanded = {f"{path}.weight": m.packed for path, m in modules if isinstance(m, Dense) and m.packed is not None}
    expand_at_load(exported, expanded)
    if model is not None:
        note_sources(exported, graph, model)
    return exported


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's notes about missing kernels of other packages are noise; errors still come through."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
