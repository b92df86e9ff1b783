"""Layers that hold their matrix packed: a model as small in memory as on disk, which still computes.

``weight`` of such a layer is unpacked each time that it is asked for and let go again. That is slow, and meant for
models that are looked at more than they are run: a reference for an export.
"""

from __future__ import annotations

from torch import nn

from foveola.weights.matrix import from_matrix
from foveola.weights.packed import Packed

_made: dict[type[nn.Module], type[nn.Module]] = {}


def hold_packed(module: nn.Module, packed: Packed) -> None:
    """Let ``module`` (linear, embedding or convolution), in place, hold ``packed`` instead of its parameter ``weight``.

    It stays an instance of its class. ``module.weight`` is a fresh fp32 parameter of the shape that it had.
    """
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    shape = tuple(weight.shape)
    kind = type(module)
    if kind not in _made:
        _made[kind] = type(kind.__name__, (kind,), {"weight": property(_unpacked), "__module__": kind.__module__})
    module._parameters.pop("weight", None)
    module.__dict__["held_packed"] = (packed, shape)
    module.__class__ = _made[kind]


def _unpacked(module: nn.Module) -> nn.Parameter:
    packed, shape = module.__dict__["held_packed"]
    return nn.Parameter(from_matrix(packed.dequantised(), shape), requires_grad=False)
