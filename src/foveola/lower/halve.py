"""Constants that 16 bits hold exactly are stored in 16 bits; the runtime widens them once, when it loads."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_SMALLEST = 256
"""Elements; below, a node costs more bytes than it saves."""


def halve(model: ir.Model) -> int:
    """Replace fp32 constants by fp16 ones and a Cast where that loses nothing. Returns the bytes saved.

    Lossless by construction: whoever wants more constants halved rounds the weights before the export. ONNX Runtime
    folds the Cast at load, so that a session computes, and prepacks, in fp32 as before.
    """
    saved = 0
    graph = model.graph
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.size < _SMALLEST:
            continue
        wide = tensor.numpy()
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float16)
        if not np.array_equal(narrow.astype(np.float32), wide):
            continue
        half = ir.Value(name=f"{name}.half", const_value=ir.tensor(narrow, name=f"{name}.half"))
        half.dtype, half.shape = ir.DataType.FLOAT16, ir.Shape(narrow.shape)
        cast = ir.node("Cast", [half], {"to": int(ir.DataType.FLOAT)}, name=f"widen.{name}")
        graph.register_initializer(half)
        first = next(iter(graph))
        graph.insert_before(first, cast)
        widened = cast.outputs[0]
        widened.name = f"{name}.wide"
        value.replace_all_uses_with(widened)
        del graph.initializers[name]
        saved += wide.nbytes - narrow.nbytes
    return saved
