"""Activation functions by the name in a checkpoint's config, each exported as one node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from foveola.exchange import Unsupported
from foveola.lower import operators

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": partial(operators.sigmoid_gate, slope=1.0),
    "swish": partial(operators.sigmoid_gate, slope=1.0),
    "quick_gelu": partial(operators.sigmoid_gate, slope=1.702),
    "gelu": nn.functional.gelu,
    "gelu_pytorch_tanh": partial(nn.functional.gelu, approximate="tanh"),
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function called ``name`` in config.json. Raises ``Unsupported`` for one that has no entry here."""
    if name not in _ACTIVATIONS:
        raise Unsupported(
            f"config.json asks for the activation {name!r}; known are: {', '.join(sorted(_ACTIVATIONS))}. "
            "Add it to foveola.lower.activation."
        )
    return _ACTIVATIONS[name]
