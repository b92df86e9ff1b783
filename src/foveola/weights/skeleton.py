"""A model without weights, and under which names a checkpoint stores each of its parameters.

Checkpoints carry the names of the code that wrote them; transformers renames on loading. The same rules are applied
here, so that one tensor can be read without loading the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key

from foveola.artifact import Checkpoint
from foveola.exchange import Damaged, Refusal, Unsupported
from foveola.family import Family
from foveola.weights.model_class import model_class
from foveola.weights.widths import fitted_class


def skeleton(checkpoint: Checkpoint, family: Family) -> nn.Module:
    """The transformers model of ``checkpoint`` on the meta device: every module, no weights, not even memory for them.

    Buffers that are computed from the configuration (rotary frequencies) are real.
    """
    kind: Any = fitted_class(model_class(family), checkpoint.config)
    try:
        config = kind.config_class.from_dict(dict(checkpoint.config))
        config._attn_implementation = "eager"
        with torch.device("meta"):
            model: Any = kind(config)
        _make_buffers(model)
    except Refusal:
        raise
    except Exception as error:  # noqa: BLE001 - a library that checks some entries and stumbles over others
        said = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise Damaged(
            f"config.json describes no model that {kind.__name__} can be: {type(error).__name__}: {said[:160]}. Copy "
            "the checkpoint whole."
        ) from None
    made: nn.Module = model.eval().requires_grad_(False)
    return made


def _make_buffers(model: Any) -> None:
    """Compute the buffers that are on the meta device, each by the rules of the model that it is a part of."""
    rules: dict[str, Any] = {"": model}
    for path, module in model.named_modules():
        parent = rules[path.rpartition(".")[0]] if path else model
        rules[path] = module if isinstance(module, PreTrainedModel) else parent
        computed = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        for name in computed:
            setattr(module, name, torch.empty_like(getattr(module, name), device="cpu"))
        if computed:
            rules[path]._init_weights(module)


def stored_names(model: nn.Module, checkpoint: Checkpoint) -> dict[str, str]:
    """Name of a parameter in ``model`` -> name of its tensor in ``checkpoint``, for every tensor that has a place.

    Tensors of names that the model does not know (a packed matrix's parts) keep theirs. Raises ``Unsupported`` where
    transformers would make one parameter of several tensors.
    """
    rules = get_model_conversion_mapping(model)  # type: ignore[arg-type]
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters: Any = [rule for rule in rules if not isinstance(rule, WeightRenaming)]
    parameters: Any = dict(model.state_dict())
    prefix = getattr(model, "base_model_prefix", "")
    found: dict[str, str] = {}
    for stored in checkpoint.tensors:
        name, converter = rename_source_key(stored, renamings, converters, prefix, parameters)
        if converter is not None:
            raise Unsupported(
                f"the tensor {stored[:80]!r} is one of several that make one parameter of this model; such checkpoints "
                "are not compressed layer by layer here. Save it with transformers' save_pretrained first."
            )
        found[name] = stored
    return found
