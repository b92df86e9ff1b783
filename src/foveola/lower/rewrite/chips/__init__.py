"""One rule table per chip, as data."""

from __future__ import annotations

from foveola.exchange import Invalid
from foveola.lower.rewrite.chips.ascend910b import ASCEND_910B
from foveola.lower.rewrite.chips.base import Chip
from foveola.lower.rewrite.chips.edgetpu import EDGE_TPU
from foveola.lower.rewrite.chips.mlu270 import MLU270

CHIPS: dict[str, Chip] = {chip.name: chip for chip in (MLU270, ASCEND_910B, EDGE_TPU)}


def chip_of(name: str) -> Chip:
    """The chip of this name; raises ``Invalid`` naming those that are known."""
    if name not in CHIPS:
        raise Invalid(f"chip {name!r} is not known; known are {', '.join(CHIPS)}.", field="chip")
    return CHIPS[name]
