"""Second moments of what linear layers read, gathered while a block runs over the calibration samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_HELD_ROWS = 1024
"""Tokens kept of the held-out samples, per input."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one input of K channels: ``gram`` Σ w x xᵀ / Σ w [K, K], ``magnitude`` Σ w |x| / Σ w [K], and ``held``
    √w x of tokens of the held-out samples [R, K]."""

    gram: Tensor
    magnitude: Tensor
    held: Tensor

    def held_error(self, error_NK: Tensor, importance_N: Tensor) -> float:
        """The weighted squared error of the output on held-out tokens, per token."""
        moved = (self.held @ error_NK.t()).square().sum(0)
        return float((moved * importance_N).sum()) / max(1, len(self.held))

    def shrink(self, scale_K: Tensor) -> None:
        """Make it that of the input divided by ``scale``, in place: a second one would be the largest of a block."""
        self.gram.div_(scale_K).div_(scale_K[:, None])
        self.magnitude.div_(scale_K)
        self.held.div_(scale_K)


class _Sum:
    def __init__(self, channels: int) -> None:
        self.gram, self.magnitude = torch.zeros(channels, channels), torch.zeros(channels)
        self.weight, self.held = 0.0, list[Tensor]()

    def add(self, x_TK: Tensor, weights_T: Tensor) -> None:
        scaled = x_TK * weights_T.sqrt()[:, None]
        self.gram.addmm_(scaled.t(), scaled)
        self.magnitude += weights_T @ x_TK.abs()
        self.weight += float(weights_T.sum())

    def hold(self, x_TK: Tensor, weights_T: Tensor, rows: int, draw: torch.Generator) -> None:
        chosen = torch.randperm(len(x_TK), generator=draw)[:rows]
        self.held.append(x_TK[chosen] * weights_T[chosen].sqrt()[:, None])

    def finished(self) -> Moments:
        total = max(self.weight, 1e-30)
        held = torch.cat(self.held) if self.held else self.magnitude[None] / total
        return Moments(self.gram / total, self.magnitude / total, held)


def gather_moments(
    block: nn.Module,
    run: Callable[[int], Tensor],
    samples: Sequence[int],
    held_out: Sequence[int],
    leaders: Mapping[str, Sequence[Tensor]],
) -> dict[str, Moments]:
    """Moments of what the layers ``leaders`` (path within the block -> weights of every sample's tokens) read.

    ``run`` runs the block on a sample. A layer that is not reached has no moments.
    """
    sums: dict[str, _Sum] = {}
    now = {"sample": 0}
    draw = torch.Generator().manual_seed(0)
    held = set(held_out)
    rows = max(1, _HELD_ROWS // max(1, len(held)))

    def hook(path: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def seen(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x_TK = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).float()
            weights = leaders[path][now["sample"]]
            if len(weights) != len(x_TK):  # a layer that gradients did not reach: every token alike
                weights = torch.ones(len(x_TK))
            total = sums.setdefault(path, _Sum(x_TK.shape[1]))
            if now["sample"] in held:
                total.hold(x_TK, weights, rows, draw)
            else:
                total.add(x_TK, weights)

        return seen

    handles = [block.get_submodule(path).register_forward_pre_hook(hook(path)) for path in leaders]
    try:
        for sample in (*samples, *held_out):
            now["sample"] = sample
            run(sample)
    finally:
        for handle in handles:
            handle.remove()
    return {path: total.finished() for path, total in sums.items()}
