"""Moving a factor per channel from the columns of some layers into what feeds them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveola.family.foldable import Fold


def fits(block: nn.Module, fold: Fold) -> bool:
    """Whether ``block`` has all layers of ``fold`` (a layer of experts lacks some)."""
    try:
        layers = [block.get_submodule(path) for path in (fold.source, *fold.targets)]
    except AttributeError:
        return False
    return all(isinstance(layer, nn.Linear) for layer in layers[1:])


def channels(block: nn.Module, fold: Fold, head_dim: int) -> Tensor | None:
    """Which of the source's channels feeds each column of the targets, int64 [K]; None where it is not so simple.

    A value head serves as many query heads as there are to it; a normalisation that is read in squares of patches
    serves each of them.
    """
    source, target = block.get_submodule(fold.source), block.get_submodule(fold.targets[0])
    assert isinstance(target, nn.Linear)
    column = torch.arange(target.in_features)
    weight = getattr(source, "weight", None)
    if weight is None:
        return None
    if not isinstance(source, nn.Linear):
        width = int(weight.shape[0])
        return column % width if target.in_features % width == 0 else None
    # A fused query_key_value with fewer value heads than query heads has parts that are not equal.
    width = source.out_features // fold.parts
    if target.in_features == width:
        return column
    if fold.parts > 1 or target.in_features % width or width % head_dim:
        return None
    repeat = target.in_features // width
    return column // (head_dim * repeat) * head_dim + column % head_dim


def apply_fold(weights: dict[str, Tensor], fold: Fold, scale_C: Tensor, channel_K: Tensor) -> None:
    """Stretch the targets' columns by ``scale_C`` and shrink what feeds them, in ``weights``."""
    for target in fold.targets:
        weights[f"{target}.weight"] = weights[f"{target}.weight"] * scale_C[channel_K]
    for name in (f"{fold.source}.weight", f"{fold.source}.bias"):
        if name in weights:
            whole = weights[name].clone()
            divisor = scale_C[:, None] if whole.ndim == 2 else scale_C
            whole[-len(scale_C) :] /= divisor
            weights[name] = whole
