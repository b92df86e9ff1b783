"""Inputs for the random models of the tests: a picture of 4 × 4 patches, then text."""

from __future__ import annotations

from typing import Any


def picture_and_text(model: Any, *, seed: int = 0, length: int = 12) -> dict[str, Any]:
    """Keyword arguments for ``model``: 4 visual tokens at place 1, ``length`` tokens in all."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 900, (1, length), generator=generator)
    ids[0, 1:5] = model.config.image_token_id
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == model.config.image_token_id).int(),
        "pixel_values": torch.randn(16, 3 * 2 * 14 * 14, generator=generator),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }


def example(model: Any, seed: int = 0) -> Any:
    """The same as an ``Example`` whose last six tokens are the answer."""
    from foveola.compress.example import Example

    inputs = picture_and_text(model, seed=seed)
    ids = inputs["input_ids"]
    answers_at = ids.bool() & False
    answers_at[0, -7:-1] = True
    return Example(inputs, ids == model.config.image_token_id, answers_at, ids[0, -6:])
