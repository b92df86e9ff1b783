"""The regulariser that couples both halves' gradients, and the importance of units for every modality.

Both gradients are with respect to the same parameters, the logits of the masks, so that they can be compared:
``g_v`` of the loss on vision tokens, ``g_l`` of the loss on text tokens.

    R = a (1 - cos(g_v, g_l)) + (1 - a) | ‖g_v‖ - ‖g_l‖ |                      (spec)
    R = a (1 - cos(g_v, g_l)) + (1 - a) | ‖g_v‖ - ‖g_l‖ | / (‖g_v‖ + ‖g_l‖)    (normalised)

The spec's form has a degenerate optimum: both gradients → 0 makes its second term vanish whatever the model does. The
normalised form does not change when both gradients are scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from foveola.exchange import Invalid

Form = Literal["spec", "normalised"]
FORMS: tuple[Form, ...] = ("spec", "normalised")
_TINY = 1e-12


def coupling(g_v: Tensor, g_l: Tensor, *, a: float = 0.3, form: Form = "spec") -> Tensor:
    """``R`` of two gradients of equal shape, differentiable in both. Raises ``Invalid`` for ``a`` outside 0..1."""
    if not 0 <= a <= 1:
        raise Invalid(f"a is {a:g}; expected 0 to 1, the share of the direction's term.", field="a")
    if form not in FORMS:
        raise Invalid(f"form is {form!r}; expected {' or '.join(FORMS)}.", field="form")
    v, t = g_v.flatten(), g_l.flatten()
    # the root of a sum of squares has no derivative at 0: a little is added under it
    norm_v, norm_t = (v.square().sum() + _TINY).sqrt(), (t.square().sum() + _TINY).sqrt()
    direction = 1 - (v * t).sum() / (norm_v * norm_t)
    magnitude = (norm_v - norm_t).abs()
    if form == "normalised":
        magnitude = magnitude / (norm_v + norm_t)
    return a * direction + (1 - a) * magnitude


def coupled_gradients(
    vision_loss: Tensor, text_loss: Tensor, logits: Sequence[Tensor], *, create_graph: bool = True
) -> tuple[Tensor, Tensor]:
    """``g_v`` and ``g_l``: the gradients of both losses with respect to all mask logits, each as one vector.

    A logit that a loss does not depend on counts as 0 in its gradient.
    """
    vectors = []
    for loss in (vision_loss, text_loss):
        found = torch.autograd.grad(loss, list(logits), create_graph=create_graph, retain_graph=True, allow_unused=True)
        vectors.append(
            torch.cat(
                [
                    (torch.zeros_like(logit) if g is None else g).flatten()
                    for g, logit in zip(found, logits, strict=True)
                ]
            )
        )
    return vectors[0], vectors[1]


class Importance:
    """Adds up ``Σ_m λ_m |Σ_{i∈k} g_i^m θ_i|`` over samples, for units k and modalities m.

    A unit's columns in its consumer are scaled by one gate, and the derivative in the gate at 1 is exactly
    ``Σ_i g_i θ_i`` over those columns. The modalities are told apart by the position that the gradient came through:
    what the answers lose by way of vision tokens, and by way of text tokens. ``λ_m`` is one over the modality's sum in
    each layer's group, so that neither drowns the other, times the weight given.
    """

    def __init__(self, units: Mapping[str, int], weights: Mapping[str, float] | None = None) -> None:
        self.weights = dict(weights or {"vision": 0.5, "text": 0.5})
        self._sums = {m: {name: torch.zeros(count) for name, count in units.items()} for m in self.weights}
        self._squares = {name: torch.zeros(count) for name, count in units.items()}
        self._samples = 0

    def add(self, gradients: Mapping[str, Mapping[str, Tensor]]) -> None:
        """One sample: modality -> group -> derivative in each unit's gate [units]."""
        for modality, by_group in gradients.items():
            for name, gradient in by_group.items():
                self._sums[modality][name] += gradient.detach().abs()
        for name, squares in self._squares.items():
            both = [by_group[name].detach() for by_group in gradients.values() if name in by_group]
            if both:
                squares += torch.stack(both).sum(0).square()
        self._samples += 1

    def taylor(self) -> dict[str, Tensor]:
        """Group -> importance of every unit, first order. The unit is the loss's, weighted and balanced."""
        totals = {m: sum(float(x.sum()) for x in by_group.values()) for m, by_group in self._sums.items()}
        whole = sum(totals.values()) / max(1, self._samples)
        found = {}
        for name in self._squares:
            parts = [weight * self._sums[m][name] / (totals[m] + _TINY) * whole for m, weight in self.weights.items()]
            found[name] = torch.stack(parts).sum(0)
        return found

    def fisher(self) -> dict[str, Tensor]:
        """Group -> ``½ E[(Σ_i g_i θ_i)²]``: the loss's expected growth when the unit goes, second order
        (Kwon et al. 2022, arXiv 2204.09656)."""
        return {name: 0.5 * squares / max(1, self._samples) for name, squares in self._squares.items()}


def block_means(importance: Tensor, block: int) -> Tensor:
    """The mean over every ``block`` neighbouring units, given back to each of them; the last block may be smaller."""
    parts = torch.split(importance, block)
    return torch.cat([part.mean().expand(len(part)) for part in parts])


class PositionGates(nn.Module):
    """Gates with a value per token, so that one backward pass tells how much came through which token."""

    def __init__(self, owner_K: Tensor, units: int) -> None:
        super().__init__()
        self.owner, self.units = owner_K, units
        self.values: Tensor | None = None

    def hook(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A forward pre-hook of the consumer: input [..., K] times ones [..., units] that can be differentiated."""
        x = inputs[0]
        self.values = torch.ones(*x.shape[:-1], self.units, requires_grad=True)
        return (x * self.values[..., self.owner], *inputs[1:])


def by_modality(gradient_TU: Tensor, is_vision_T: Tensor) -> dict[str, Tensor]:
    """Sum a per-token gate gradient [..., units] over the vision tokens and over the others."""
    flat, seen = gradient_TU.reshape(-1, gradient_TU.shape[-1]), is_vision_T.reshape(-1)
    return {"vision": flat[seen].sum(0), "text": flat[~seen].sum(0)}
