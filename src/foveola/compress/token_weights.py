"""How much every token matters to every layer: one backward pass per sample.

``w_t = ‖dL/dy_t‖²`` for a layer's output y, normalised within each modality, so that hundreds of visual tokens do not
drown ten words, and every modality counts. For rows of a layer, ``h_r = Σ_t (dL/dy_tr)²``: the diagonal of the Fisher
matrix of its outputs. L is the log-likelihood of answers that the model itself gives, which makes the squares the
curvature of the KL divergence from it (Martens 2020, arXiv 1412.1193).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foveola.compress.example import Example
from foveola.compress.streamed import Control, Streamed

MODALITIES = ("vision", "prompt", "answer")
_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Importance:
    """Of one linear layer: for every sample the squared gradient norms of its tokens [T], and of its rows [N]."""

    tokens: list[Tensor]
    rows: Tensor


class _Watch:
    def __init__(self) -> None:
        self.tokens: dict[str, Tensor] = {}
        self.rows: dict[str, Tensor] = {}

    def hook(self, path: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def seen(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(lambda gradient: self._keep(path, gradient))  # type: ignore[no-untyped-call]

        return seen

    def _keep(self, path: str, gradient: Tensor) -> None:
        squares = gradient.detach().reshape(-1, gradient.shape[-1]).square()
        self.tokens[path] = squares.sum(-1)
        self.rows[path] = self.rows.get(path, torch.zeros(squares.shape[1])) + squares.sum(0)


def measure_importance(
    model: nn.Module,
    control: Control,
    linears: Sequence[str],
    examples: Sequence[Example],
    *,
    seed: int = 0,
    tell: Callable[[float], None] = lambda share: None,
) -> dict[str, Importance]:
    """One streamed backward pass per example; ``linears`` are paths inside wrapped blocks."""
    watch = _Watch()
    tokens: dict[str, list[Tensor]] = {path: [] for path in linears}
    handles = [_inner(control, path).register_forward_hook(watch.hook(path)) for path in linears]
    handles += [block.register_forward_pre_hook(_require) for block in model.modules() if isinstance(block, Streamed)]
    draw = torch.Generator().manual_seed(seed)
    try:
        for number, example in enumerate(examples):
            watch.tokens.clear()
            with torch.enable_grad():
                logits = model(**example.inputs, use_cache=False).logits[example.answers_at]
                likely = torch.log_softmax(logits, -1)
                said = torch.multinomial(likely.detach().exp(), 1, generator=draw)
                (-likely.gather(-1, said).sum()).backward()  # type: ignore[no-untyped-call]
            for path in linears:
                tokens[path].append(watch.tokens.get(path, torch.zeros(0)))
            tell((number + 1) / len(examples))
    finally:
        for handle in handles:
            handle.remove()
    return {path: Importance(tokens[path], watch.rows.get(path, torch.zeros(0))) for path in linears}


def _inner(control: Control, path: str) -> nn.Module:
    home = next(block for block in control.blocks if path.startswith(f"{block}."))
    return control.blocks[home].get_submodule(path[len(home) + 1 :])


def _require(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What enters a block requires a gradient, though no parameter does."""
    hidden, *rest = arguments
    return (hidden if hidden.requires_grad else hidden.detach().requires_grad_(), *rest)


def modality_of(example: Example) -> Tensor:
    """Index into ``MODALITIES`` of every token of the decoder, int64 [T]."""
    return torch.where(example.is_vision[0], 0, torch.where(example.answers_at[0], 2, 1))


def normalised(
    squares: Sequence[Tensor], modalities: Sequence[Tensor] | None, shares: tuple[float, float, float], power: float
) -> list[Tensor]:
    """Weights of the tokens of every sample, with mean 1 over all.

    ``squares`` are summed squared gradients; ``power`` tempers them (0: every token of a modality alike, 1: as they
    are). ``modalities`` None: all tokens are of one. Within a modality weights are relative; ``shares`` then say how
    the whole mass is divided between the modalities that occur. No token weighs nothing.
    """
    flat = torch.cat([one.clamp(min=0) ** power for one in squares])
    kinds = torch.zeros(len(flat), dtype=torch.long) if modalities is None else torch.cat(list(modalities))
    present = [kind for kind in range(3) if (kinds == kind).any()]
    mass = sum(shares[kind] for kind in present)
    weights = torch.zeros(len(flat))
    for kind in present:
        chosen = kinds == kind
        relative = flat[chosen] / flat[chosen].mean().clamp(min=1e-30)
        share = 1.0 if modalities is None else shares[kind] / mass
        weights[chosen] = relative.clamp(min=_LEAST) * share * len(flat) / int(chosen.sum())
    return list(weights.split([len(one) for one in squares]))  # type: ignore[no-untyped-call]
