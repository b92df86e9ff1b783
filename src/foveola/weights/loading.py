"""A checkpoint as a model of transformers, in memory and whole, whether its matrices are packed or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers.utils import logging as hf_logging

from foveola.artifact import Checkpoint
from foveola.exchange import Damaged
from foveola.family import Family
from foveola.weights.foreign import QUANTISATION
from foveola.weights.matrix import from_matrix
from foveola.weights.model_class import model_class
from foveola.weights.quantised import packed_matrices
from foveola.weights.widths import fitted_class


def load(checkpoint: Checkpoint, family: Family) -> nn.Module:
    """The transformers model of ``checkpoint``, fp32, frozen; packed matrices are unpacked.

    Raises ``Damaged`` where tensors are missing.
    """
    with no_progress_bars():
        source = fitted_class(model_class(family), checkpoint.config)
        model, info = source.from_pretrained(
            checkpoint.path,
            config=_plain_config(source, checkpoint),
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, in our words
        )
    other = sorted(str(key[0] if isinstance(key, tuple) else key) for key in info["mismatched_keys"])
    if other:
        raise Damaged(
            f"{checkpoint.weight_files[0]} has {len(other)} tensors of other sizes than config.json says, {other[0]} "
            "among them. The config.json belongs to another checkpoint."
        )
    packed = {f"{path}.weight" for path in unpack_into(model, checkpoint)}
    tied = set(getattr(model, "all_tied_weights_keys", None) or ()) if packed else set()
    missing = sorted(set(info["missing_keys"]) - packed - tied)
    if missing:
        raise Damaged(
            f"{checkpoint.weight_files[0]} lacks {len(missing)} tensors that config.json asks for, {missing[0]} among "
            "them. The checkpoint is incomplete, or its config.json belongs to another."
        )
    loaded: nn.Module = model.eval().requires_grad_(False)
    return loaded


@torch.no_grad()
def unpack_into(model: nn.Module, checkpoint: Checkpoint) -> list[str]:
    """Set the weights of ``model`` that ``checkpoint`` holds packed; the paths of their modules."""
    matrices = packed_matrices(checkpoint, model)
    for path, read in matrices.items():
        weight = model.get_submodule(path).weight
        assert isinstance(weight, nn.Parameter)
        weight.copy_(from_matrix(read().dequantised(), tuple(weight.shape)))
    return list(matrices)


def _plain_config(source: Any, checkpoint: Checkpoint) -> Any:
    """The configuration without its entry on quantisation: transformers would ask for the tools that wrote it."""
    entries = {name: value for name, value in checkpoint.config.items() if name != QUANTISATION}
    return source.config_class.from_dict(entries)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """transformers' own bars would be drawn over ours, and its report on packed matrices would call them missing."""
    shown, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    hf_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if shown:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
