"""The normalisations of a model as modules that export themselves: with mean (LayerNorm), or without (RMS)."""

from __future__ import annotations

from torch import Tensor, nn

from foveola.lower import operators


class LayerNorm(nn.Module):
    """The weights and epsilon of one layer normalisation of the model."""

    weight: Tensor
    bias: Tensor

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        assert isinstance(source, nn.LayerNorm)
        self.register_buffer("weight", source.weight.detach())
        self.register_buffer("bias", source.bias.detach())
        self.epsilon = float(source.eps)

    def forward(self, x: Tensor) -> Tensor:
        """[..., E] -> [..., E]."""
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class RmsNorm(nn.Module):
    """The weight and epsilon of one RMS normalisation of the model."""

    weight: Tensor

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        weight, epsilon = source.weight, source.variance_epsilon
        assert isinstance(weight, Tensor) and isinstance(epsilon, float)
        self.register_buffer("weight", weight.detach())
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] -> [..., H]."""
        return operators.rms_norm(x, self.weight, self.epsilon)

    def after_adding(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """``(norm(x + residual), x + residual)``."""
        return operators.add_rms_norm(x, residual, self.weight, self.epsilon)


def norm_of(source: nn.Module) -> LayerNorm | RmsNorm:
    """The module that stands for ``source``, by its kind."""
    return LayerNorm(source) if isinstance(source, nn.LayerNorm) else RmsNorm(source)
