"""How a matrix may be stored, and how to write that down: ``fp32``, ``fp16``, ``int8@load``, ``int4/64@1``, ``int4s``.

Pure data: options can be read and checked without loading torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from foveola.exchange import Invalid

BITS = (2, 4, 8)
BLOCKS = (16, 32, 64, 128, 256)
ACCURACY_LEVELS = (0, 1, 4)


@dataclass(frozen=True, slots=True)
class Format:
    """Blocks of few-bit weights, and how they are multiplied.

    ``accuracy_level`` of MatMulNBits: 0 as the kernel likes, 1 in fp32, 4 with activations rounded to int8 per block
    (faster for few rows). ``expand``: not by MatMulNBits, but widened to fp32 when the graph is loaded (faster for
    many rows). ``symmetric``: rounded around 0, so that no block has a zero point of its own: a little coarser, and
    quicker for few rows.
    """

    bits: int
    block: int = 32
    accuracy_level: int = 4
    expand: bool = False
    symmetric: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("bits", self.bits, BITS),
            ("block", self.block, BLOCKS),
            ("accuracy_level", self.accuracy_level, ACCURACY_LEVELS),
        ):
            if value not in allowed:
                raise Invalid(
                    f"{name} is {value!r}; the CPU kernels know {', '.join(map(str, allowed))}. Choose one of these.",
                    field=name,
                )

    def __str__(self) -> str:
        around = "s" if self.symmetric else ""
        return f"int{self.bits}{around}/{self.block}@{'load' if self.expand else self.accuracy_level}"


Storage = Format | Literal["fp32", "fp16"]
"""``fp16`` is stored in 16 bits and computed in 32."""

_INTEGER = re.compile(r"int(\d+)(s)?(?:/(\d+))?(?:@(\d+|load))?")


def parse_storage(text: str, *, block: int = 32, accuracy_level: int = 4, field: str = "precision") -> Storage:
    """``fp32``, ``fp16`` or ``int<bits>[s][/<block>][@<level or load>]``. Raises ``Invalid`` naming ``field``."""
    if text == "fp32":
        return "fp32"
    if text == "fp16":
        return "fp16"
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise Invalid(
            f"{field} is {text!r}; expected fp32, fp16, int8, int4 or int2, the last three also with block size and "
            "accuracy level, as in int4/64@1, or @load for widening when the graph is loaded; int4s rounds around 0.",
            field=field,
        )
    bits, around, own_block, own_level = match.groups()
    if own_level == "load":
        return Format(int(bits), int(own_block or block), expand=True, symmetric=around is not None)
    level = int(own_level or accuracy_level)
    return Format(int(bits), int(own_block or block), level, symmetric=around is not None)
