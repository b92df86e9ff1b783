"""One calibration example as a model takes it, with what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Example:
    """A picture and text, or text alone.

    ``inputs`` are the model's keyword arguments for a batch of one. ``is_vision`` bool [1, T] marks visual tokens,
    ``answers_at`` bool [1, T] the tokens whose logits predict the answer, ``targets`` int64 [n] what they should say.
    """

    inputs: Mapping[str, Any]
    is_vision: Tensor
    answers_at: Tensor
    targets: Tensor


def text_example(ids: Tensor) -> Example:
    """A text [T] in which every token is predicted from those before it."""
    row = ids.view(1, -1)
    at = row.new_ones(row.shape).bool()
    at[0, -1] = False
    return Example({"input_ids": row}, ~at & False, at, row[0, 1:])


def predicted(model: nn.Module, example: Example) -> tuple[Tensor, Tensor]:
    """Logits [n, V] of the answer's tokens, and the targets [n]."""
    logits = model(**example.inputs, use_cache=False).logits
    return logits[example.answers_at], example.targets
