"""From the layers of a loaded model to the layers of an export: dense or packed, alone or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from foveola.lower.nbits import QLinear
from foveola.weights.packed import Packed, concatenated

PackedWeights = Mapping[str, Packed]
"""Path of a module inside the model -> its weights, for every module that is stored in a few bits."""


class Dense(nn.Module):
    """``x @ weight + bias`` with the weight stored as the graph wants it, [K, N]: no transposition is exported.

    ``packed`` is what the file stores instead of the weight, if anything (``narrow.expand_at_load``).
    """

    weight: Tensor

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None, packed: Packed | None = None) -> None:
        super().__init__()
        self.packed = packed
        self.register_buffer("weight", weight_NK.detach().t().contiguous())
        self.register_buffer("bias", None if bias_N is None else bias_N.detach())

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        y = torch.matmul(x, self.weight)
        return y + self.bias if isinstance(self.bias, Tensor) else y


def fold_patch_kernel(convolution: nn.Module) -> Tensor:
    """The kernel of a patch embedding as a matrix [E, C*P*P] for still pictures.

    A still picture is shown to the model as equal frames, so that the kernels over time add up. Columns are in the
    order of the patches: channel, row, column.
    """
    if isinstance(convolution, nn.Conv2d):
        return convolution.weight.detach().flatten(1)
    assert isinstance(convolution, nn.Conv3d)
    return convolution.weight.detach().sum(dim=2).flatten(1)


def inputs_of(model: nn.Module, path: str) -> int:
    """How many inputs the linear layer at ``path`` has."""
    return int(_matrix(model.get_submodule(path)).shape[1])


def layer(model: nn.Module, paths: Sequence[str], packed: PackedWeights) -> nn.Module:
    """One exportable layer for one or several linear layers that read the same input (their outputs side by side).

    Its attribute ``sources`` holds the paths, for whoever wants to know where its weights came from.
    """
    made = _layer(model, paths, packed)
    made.sources = tuple(paths)  # type: ignore[assignment]
    return made


def _layer(model: nn.Module, paths: Sequence[str], packed: PackedWeights) -> nn.Module:
    sources = [model.get_submodule(path) for path in paths]
    biases = [getattr(source, "bias", None) for source in sources]
    bias = _side_by_side(sources, biases)
    parts = [packed.get(path) for path in paths]
    if all(part is not None for part in parts):
        known = [part for part in parts if part is not None]
        if len({part.format for part in known}) == 1:
            joined = concatenated(known)
            return Dense(joined.dequantised(), bias, joined) if joined.format.expand else QLinear(joined, bias)
    if any(part is not None for part in parts):
        return Parallel([layer(model, [path], packed) for path in paths])
    return Dense(torch.cat([_matrix(source) for source in sources]), bias)


class Parallel(nn.Module):
    """Layers over the same input in different formats; their outputs side by side."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., sum of N]."""
        return torch.cat([one(x) for one in self.layers], dim=-1)


def _matrix(source: nn.Module) -> Tensor:
    if isinstance(source, (nn.Conv2d, nn.Conv3d)):
        return fold_patch_kernel(source)
    weight = source.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def _side_by_side(sources: Sequence[nn.Module], biases: Sequence[Tensor | None]) -> Tensor | None:
    if all(bias is None for bias in biases):
        return None
    return torch.cat(
        [
            bias.detach() if bias is not None else torch.zeros(_matrix(source).shape[0])
            for source, bias in zip(sources, biases, strict=True)
        ]
    )
