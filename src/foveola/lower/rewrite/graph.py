"""An ONNX file as a graph that can be rewritten: opened, bound to sizes, with its constants in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import (
    InlinePass,
    LiftConstantsToInitializersPass,
    RemoveInitializersFromInputsPass,
    RemoveUnusedNodesPass,
)

from foveola.exchange import Invalid

MOST_BYTES = 1_500_000_000
"""A model and its copies for the proof have to fit protobuf's 2 GiB."""
Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Replacement:
    """``old`` nodes, in order, whose last output is ``was``; ``new`` nodes whose last output is ``now``.

    No new nodes: ``now`` is a value that is there already. ``function`` is what a new node calls; ``constants`` are
    weights that only the new nodes read; ``fixed`` values are
    not drawn for the proof, since no input decides them. ``rule`` names who found it.
    """

    rule: str
    old: tuple[ir.Node, ...]
    was: ir.Value
    new: tuple[ir.Node, ...]
    now: ir.Value
    function: ir.Function | None = None
    constants: tuple[ir.Value, ...] = field(default=())
    fixed: tuple[ir.Value, ...] = field(default=())


def open_model(path: Path) -> ir.Model:
    """Read an ONNX file; functions of the model are inlined, constants become initializers.

    Raises ``Invalid`` where it is no ONNX file, or larger than ``MOST_BYTES``.
    """
    try:
        model = ir.load(path)
        size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    except OSError:
        raise Invalid(f"{path.name} cannot be read; give the path of an ONNX file.", field="model") from None
    except Exception:  # noqa: BLE001  protobuf has an error of its own for every way of being broken
        raise Invalid(f"{path.name} is no ONNX file; give one that onnxruntime opens.", field="model") from None
    if not list(model.graph):
        raise Invalid(f"{path.name} holds no operators; give a model.", field="model")
    if size > MOST_BYTES:
        raise Invalid(
            f"{path.name} has {size / 1e9:.1f} GB of weights; at most {MOST_BYTES / 1e9:.1f} GB can be rewritten. "
            "Give one part of the model.",
            field="model",
        )
    try:
        ir.external_data.load_to_model(model)
    except (OSError, ValueError):
        raise Invalid(
            f"weights that {path.name} keeps in another file are missing; put it beside.", field="model"
        ) from None
    return prepare(model)


def prepare(model: ir.Model) -> ir.Model:
    """Make ``model`` ready for the passes, in place."""
    for step in (
        InlinePass(),
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        RemoveInitializersFromInputsPass(),
        RemoveUnusedNodesPass(),
    ):
        step(model)
    for index, node in enumerate(model.graph):
        node.name = node.name or f"{node.op_type}_{index}"
        for position, value in enumerate(node.outputs):
            if value.name is None:
                value.name = f"{node.name}_{position}"
    model.ir_version = max(model.ir_version, 8)  # the first with functions
    return model


def bind(model: ir.Model, sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> None:
    """Give inputs numbers for their named sizes, or whole shapes by name; raises ``Invalid`` for unknown names."""
    inputs = {value.name: value for value in model.graph.inputs}
    known = {str(size) for value in model.graph.inputs for size in value.shape or () if not isinstance(size, int)}
    for name in shapes:
        if name not in inputs:
            raise Invalid(f"there is no input {name!r}; there are {_listed(inputs)}.", field="shape")
    for name in sizes:
        if name not in known:
            raise Invalid(f"no input has a size named {name!r}; named are {_listed(known)}.", field="dim")
    for value in model.graph.inputs:
        if value.shape is None and value.name not in shapes:
            raise Invalid(f"the input {value.name!r} has no shape; give --shape {value.name}=1,3,224,224.")
        given = shapes.get(value.name or "")
        if given is not None and value.shape is not None and len(given) != len(value.shape):
            raise Invalid(f"{value.name!r} has {len(value.shape)} sizes; {len(given)} were given.", field="shape")
        was: Iterable[object] = given if given is not None else value.shape or ()
        value.shape = ir.Shape([size if isinstance(size, int) else sizes.get(str(size), str(size)) for size in was])
    if sizes or shapes:
        _forget_inner_shapes(model)


def _listed(names: Iterable[str | None]) -> str:
    return ", ".join(sorted(repr(name) for name in names if name)) or "none"


def _forget_inner_shapes(model: ir.Model) -> None:
    for node in model.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None


def constant(value: ir.Value | None) -> Array | None:
    """What a constant holds; None where the value is computed or an input."""
    if value is None or value.const_value is None or not value.is_initializer():
        return None
    array: Array = value.const_value.numpy()
    return array


def node_name(node: ir.Node) -> str:
    """``Conv``, or ``com.microsoft:QuickGelu`` for what the standard does not have."""
    return f"{node.domain}:{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def ints(node: ir.Node, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute of whole numbers, or its default."""
    attribute = node.attributes.get(name)
    return tuple(attribute.as_ints()) if attribute is not None else tuple(default)


def integer(node: ir.Node, name: str, default: int) -> int:
    """An attribute that is one whole number, or its default."""
    attribute = node.attributes.get(name)
    return int(attribute.as_int()) if attribute is not None else default


def number(node: ir.Node, name: str, default: float) -> float:
    """An attribute that is one number, or its default."""
    attribute = node.attributes.get(name)
    return float(attribute.as_float()) if attribute is not None else default


def apply(model: ir.Model, replacement: Replacement) -> None:
    """Put the new nodes in the place of the old ones, in place; names at the graph's border stay."""
    graph = model.graph
    for value in replacement.constants:
        graph.register_initializer(value)
    graph.insert_before(replacement.old[-1], replacement.new)
    if replacement.new:
        replacement.now.name = replacement.was.name
        replacement.now.shape, replacement.now.type = replacement.was.shape, replacement.was.type
    replacement.was.replace_all_uses_with(replacement.now, replace_graph_outputs=True)
    graph.remove(list(reversed(replacement.old)), safe=True)
    if replacement.function is not None:
        function = replacement.function
        model.functions[function.identifier()] = function
        graph.opset_imports.setdefault(function.domain, 1)
