"""What rounding a layer's weights will cost the model, before it is done: second moments, Fisher information, cost.

    Ω_{l,b} = ½ Σ_r h_r (E Σ Eᵀ)_rr        E = W - Q_b(W),  Σ = mean x xᵀ,  h_r = Σ_t g_{t,r}² per predicted token

is the expected KL divergence per predicted token, to second order, under the approximation that a layer's inputs and
the gradients of its outputs are independent (Martens & Grosse 2015, arXiv 1503.05671) and that errors of rows and
layers do not correlate. The gradients are those of labels drawn from the model itself, or random ones with the same
second moments: only then is h the Fisher information (Kunstner et al. 2019, arXiv 1905.12558). The relative error of
the weights alone ranks layers badly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from foveola.exchange import Invalid

Logits = Callable[[], Tensor]
"""Runs the model on one sample and gives the logits [T, V] of the tokens that it predicts there."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Of one layer: ``gram`` fp32 [K, K], mean over tokens of x xᵀ; ``fisher`` fp32 [N], the ``h_r`` of its rows."""

    gram: Tensor
    fisher: Tensor

    def cost(self, weight_NK: Tensor, rounded_NK: Tensor) -> float:
        """``Ω`` in nats per predicted token."""
        return 0.5 * float((self.fisher * self.row_errors(weight_NK, rounded_NK)).sum())

    def row_errors(self, weight_NK: Tensor, rounded_NK: Tensor) -> Tensor:
        """``(E Σ Eᵀ)_rr`` [N]: the mean square of each output's error."""
        error = weight_NK.float() - rounded_NK.float()
        return ((error @ self.gram) * error).sum(dim=1)

    def relative_error(self, weight_NK: Tensor, rounded_NK: Tensor) -> float:
        """``‖E X‖ / ‖W X‖``: the relative error of the layer's output on the data seen."""
        whole = float(((weight_NK.float() @ self.gram) * weight_NK.float()).sum())
        return math.sqrt(float(self.row_errors(weight_NK, rounded_NK).sum()) / max(whole, 1e-30))


class Watch:
    """Adds up what `Sensitivity` needs, layer by layer; layers that read one tensor share its second moments."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        self._modules = {path: model.get_submodule(path) for path in paths}
        self._grams: dict[str, Tensor] = {}
        self._leader: dict[str, str] = {}
        self._squares: dict[str, Tensor] = {}
        self._tokens: dict[str, int] = {}
        self._predicted = 0

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Watch one sample; what runs within is a forward and a backward pass."""
        seen: dict[int, tuple[str, Tensor]] = {}
        with ExitStack() as stack:
            for path, module in self._modules.items():
                stack.callback(module.register_forward_hook(self._hook(path, seen)).remove)
            yield

    def _hook(self, path: str, seen: dict[int, tuple[str, Tensor]]) -> Callable[..., None]:
        def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            x = inputs[0]
            leader, _ = seen.setdefault(id(x), (path, x))  # x is kept, so that its id stays its own
            self._leader[path] = leader
            flat = x.detach().reshape(-1, x.shape[-1]).float()
            if leader == path:
                found = flat.T @ flat
                self._grams[path] = self._grams[path].add_(found) if path in self._grams else found
                self._tokens[path] = self._tokens.get(path, 0) + len(flat)
            if output.requires_grad:
                output.register_hook(lambda gradient: self._add(path, gradient))  # type: ignore[no-untyped-call]

        return look

    def _add(self, path: str, gradient: Tensor) -> None:
        squares = gradient.detach().reshape(-1, gradient.shape[-1]).float().square().sum(0)
        self._squares[path] = self._squares[path] + squares if path in self._squares else squares

    def predicted(self, tokens: int) -> None:
        """Count the tokens that the sample's loss was summed over."""
        self._predicted += tokens

    def found(self) -> dict[str, Sensitivity]:
        """Path -> sensitivity. Raises ``Invalid`` naming a layer that no sample reached."""
        unseen = [path for path in self._modules if path not in self._squares]
        if unseen or not self._predicted:
            raise Invalid(
                f"no calibration sample reached {unseen[0] if unseen else 'any layer'}; give samples with pictures "
                "and answers, so that both halves are used.",
                field="samples",
            )
        means = {path: gram / self._tokens[path] for path, gram in self._grams.items()}
        return {
            path: Sensitivity(means[self._leader[path]], self._squares[path] / self._predicted)
            for path in self._modules
        }


def measure(
    model: nn.Module, paths: Sequence[str], samples: Iterable[Logits], *, seed: int = 0, draws: int = 1
) -> dict[str, Sensitivity]:
    """Sensitivities of the layers at ``paths``, from ``draws`` draws per sample.

    The parameters' own gradients are not needed and not computed; what enters the first layers is made to require one.
    """
    watch = Watch(model, paths)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad(), _gradients_from(model, paths):
        for sample in samples:
            for _ in range(draws):
                with watch.forward():
                    logits = sample()
                    logits.backward(probe(logits.detach().softmax(-1), generator))  # type: ignore[no-untyped-call]
                watch.predicted(len(logits))
    return watch.found()


def probe(p_TV: Tensor, generator: torch.Generator) -> Tensor:
    """Random gradients of the logits with the second moments ``diag(p) - p pᵀ`` of those that drawn labels give.

    ``√p ∘ ε - p (√p · ε)`` with normal ε. A model that is sure of its answers hardly ever draws another label, and then
    all of the information is in a few draws; these have it in every one.
    """
    root = p_TV.sqrt()
    noise = torch.randn(p_TV.shape, generator=generator)
    return root * noise - p_TV * (root * noise).sum(-1, keepdim=True)


@contextmanager
def _gradients_from(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """Inside, every watched layer's output requires a gradient, though no parameter does."""

    def require(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        return None if output.requires_grad else output.requires_grad_()

    handles = [model.get_submodule(path).register_forward_hook(require) for path in paths]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def tried_cost(
    model: nn.Module, path: str, rounded_NK: Tensor, samples: Sequence[Logits], whole: Sequence[Tensor]
) -> float:
    """KL per predicted token when the layer ``path`` alone has these weights, measured on ``samples``.

    ``whole`` are their log-probabilities [T, V] by the unrounded model. Two bits move answers further than the second
    order of ``Ω`` reaches; this says how far, at a forward pass per sample.
    """
    module: Any = model.get_submodule(path)
    exact = module.weight
    module.weight = nn.Parameter(rounded_NK.to(exact.dtype), requires_grad=False)
    try:
        total = sum(
            float((before.exp() * (before - sample().log_softmax(-1))).sum())
            for sample, before in zip(samples, whole, strict=True)
        )
    finally:
        module.weight = exact
    return max(total, 0.0) / sum(len(one) for one in whole)


def relative_weight_error(weight_NK: Tensor, rounded_NK: Tensor) -> float:
    """``‖W - Wq‖ / ‖W‖``: what the described bound is made of, here for comparison."""
    return float((weight_NK - rounded_NK).norm() / weight_NK.norm().clamp(min=1e-30))
