"""A parameter as the matrix that is stored of it, and back."""

from __future__ import annotations

from torch import Tensor


def as_matrix(weight: Tensor) -> Tensor:
    """[N, K] as it is; a patch kernel [E, C, T, P, P] as [E, C*P*P] for still pictures.

    A still picture is shown to the model as equal frames, so that the kernels over time add up. Columns are in the
    order of the patches: channel, row, column. A kernel [E, C, P, P] has one frame.
    """
    if weight.ndim == 5:
        weight = weight.sum(dim=2)
    return weight.flatten(1)


def from_matrix(matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The parameter of ``shape`` that ``as_matrix`` makes ``matrix`` of; frames of a patch kernel are equal."""
    if len(shape) == 5:
        kernel = matrix.view(shape[0], shape[1], 1, *shape[3:])
        return (kernel / shape[2]).repeat(1, 1, shape[2], 1, 1)
    return matrix.view(shape)
