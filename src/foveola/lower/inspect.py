"""What is in a graph, counted: builders have been known to ignore what they were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from foveola.exchange import Damaged
from foveola.family import Family
from foveola.lower.narrow import EXPANDED
from foveola.lower.storage import Stored
from foveola.weights.formats import Format


def count_operators(graph: ir.Model) -> Counter[str]:
    """Operator -> number of nodes, contributed ones with their domain: ``com.microsoft::MatMulNBits``."""
    return Counter(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in graph.graph)


def stored_weights(graph: ir.Model) -> Counter[str]:
    """Storage as text -> number of weights that the graph holds in it, over all packed operators."""
    found: Counter[str] = Counter()
    for node in graph.graph:
        if node.op_type == "MatMulNBits":
            bits, block = _attribute(node, "bits"), _attribute(node, "block_size")
            form = Format(bits, block, _attribute(node, "accuracy_level"))
            found[str(form)] += _attribute(node, "K") * _attribute(node, "N")
        elif node.name is not None and node.name.startswith(f"{EXPANDED} "):
            _, form_text, count, _ = node.name.split(" ", 3)
            found[form_text] += int(count)
        elif node.op_type == "GatherBlockQuantized":
            data = node.inputs[0]
            assert data is not None and data.const_value is not None
            bits = _attribute(node, "bits")
            found[f"int{bits}/{_attribute(node, 'block_size')}"] += data.const_value.size * 8 // bits
    return found


def check_storage(graphs: Mapping[str, ir.Model], family: Family, stored: Stored) -> None:
    """Raise ``Damaged`` unless the graphs hold exactly as many weights in each format as were planned."""
    parts = family.parts
    wanted: dict[str, Counter[str]] = {role: Counter() for role in graphs}
    for path, packed in stored.packed.items():
        weights = packed.outer * packed.inner
        if path == parts.embedding:
            wanted["embed"][f"int{packed.format.bits}/{packed.format.block}"] += weights
        elif path in parts.projector or (family.sees and path.startswith(f"{parts.vision}.")):
            wanted["vision"][_computed(packed.format)] += weights
        else:
            wanted["decoder"][_computed(packed.format)] += weights
    for role, graph in graphs.items():
        held = stored_weights(graph)
        if held != wanted[role]:
            raise Damaged(
                f"{role}.onnx holds {_text(held)}, but {_text(wanted[role])} were asked for. "
                "This is a fault of the exporter; please report it."
            )


def _computed(form: Format) -> str:
    """The format as a product tells it: not how weights were rounded, which the zero points say where it matters."""
    return str(form if form.expand else replace(form, symmetric=False))


def _text(weights: Counter[str]) -> str:
    return ", ".join(f"{count} weights in {name}" for name, count in sorted(weights.items())) or "no packed weights"


def _attribute(node: ir.Node, name: str) -> int:
    return node.attributes[name].as_int()
