"""Which family a checkpoint belongs to, by the ``model_type`` of its config.json."""

from __future__ import annotations

from foveola.exchange import Damaged, Unsupported
from foveola.family.base import Config, Family
from foveola.family.idefics3 import IDEFICS3, SMOLVLM
from foveola.family.internvl import INTERNVL
from foveola.family.llama import LLAMA, MISTRAL
from foveola.family.llava import LLAVA, LLAVA_NEXT
from foveola.family.phi3_v import PHI3_V
from foveola.family.qwen2_5_vl import QWEN2_5_VL
from foveola.family.qwen2_vl import QWEN2_VL
from foveola.family.qwen3_vl import QWEN3_VL, QWEN3_VL_MOE
from foveola.family.reading import guarded

MOST = 2**24
LARGEST = {"num_hidden_layers": 2048, "depth": 2048, "image_size": 2**15, "num_experts": 4096}
"""What a number of config.json may be: beyond, a model would be built for hours before it is refused."""
_SIZES = ("_size", "_dim", "_heads", "_layers", "_channels", "_experts", "depth")
_FAMILIES: dict[str, Family] = {
    family.model_type: guarded(family)
    for family in (
        QWEN2_VL,
        QWEN2_5_VL,
        QWEN3_VL,
        QWEN3_VL_MOE,
        LLAVA,
        LLAVA_NEXT,
        IDEFICS3,
        SMOLVLM,
        PHI3_V,
        INTERNVL,
        LLAMA,
        MISTRAL,
    )
}


def supported() -> tuple[str, ...]:
    """Every ``model_type`` that has a record here, sorted."""
    return tuple(sorted(_FAMILIES))


def family_of(config: Config) -> Family:
    """The family of a checkpoint with this config.json.

    Raises ``Unsupported``, naming what is supported, where there is none.
    """
    model_type = config.get("model_type")
    family = _FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        came = f"model_type {model_type!r}" if model_type else "no model_type"
        raise Unsupported(
            f"config.json says {came}; supported are: {', '.join(supported())}. "
            "Use a checkpoint of one of these, or add a record to foveola.family."
        )
    _check_sizes(config, "config.json: ")
    return family


def _check_sizes(config: Config, where: str) -> None:
    for name, value in config.items():
        if isinstance(value, dict):
            _check_sizes(value, f"{where}{name}.")
        elif isinstance(value, int) and name.endswith(_SIZES) and abs(value) > LARGEST.get(name, MOST):
            shown = value if abs(value) < 10**18 else "a number of more than 18 digits"
            most = LARGEST.get(name, MOST)
            raise Damaged(f"{where}{name} is {shown}; no model has more than {most}. Copy the checkpoint whole.")
