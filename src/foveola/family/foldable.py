"""Where a factor per channel can be moved from one layer into the one before, as data.

A linear layer computes the same when its columns are multiplied by s and what feeds it is divided by s. That is free
where the feeding layer's rows (or a normalisation's weights) take the division, and nothing but a product or a sum
over other channels lies between: not through GELU, and through SiLU only on the gated MLP's other branch.
"""

from __future__ import annotations

from dataclasses import dataclass

from foveola.family.base import Family


@dataclass(frozen=True, slots=True)
class Fold:
    """``targets`` read what ``source`` gives. Paths begin at a block (``in_block``) or at the model's root.

    ``rows`` says which of the source's rows feed them: all, or the last part of that many equal ones (value within
    query_key_value, up within gate_up).
    """

    source: str
    targets: tuple[str, ...]
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Half:
    """Vision tower or decoder: its list of blocks, the folds of every block, and those outside of the blocks.

    ``linears`` are the matrices of a block, ``outside`` those between the last block and the next half.
    """

    name: str
    blocks: str
    folds: tuple[Fold, ...]
    outside_folds: tuple[Fold, ...] = ()


def halves(family: Family) -> tuple[Half, ...]:
    """The halves of a family that can be scaled, vision first. Folds name layers that a block may lack (experts)."""
    found = [_tower(family)] if family.parts.vision else []
    return (*found, _decoder(family))


def _decoder(family: Family) -> Half:
    names = family.decoder
    fused, gate_up = names.query_key_value, names.gate_up
    folds = [
        Fold(names.input_norm, names.attention_inputs),
        Fold(fused or names.value, (names.output,), 3 if fused else 1),
        Fold(names.mlp_norm, (gate_up,) if gate_up else (names.gate, names.up)),
        Fold(gate_up or names.up, (names.down,), 2 if gate_up else 1),
    ]
    return Half("decoder", f"{family.parts.decoder}.{names.layers}", tuple(folds))


def _tower(family: Family) -> Half:
    names, root = family.tower, family.parts.vision
    fused = names.value is None
    folds = [
        Fold(names.attention_norm, names.attention_inputs),
        Fold(names.value or names.query_key_value, (names.output,), 3 if fused else 1),
        Fold(names.mlp_norm, (names.gate, names.up) if names.gate else (names.up,)),
    ]
    if names.gate:
        folds.append(Fold(names.up, (names.down,)))
    outside = []
    if family.parts.projector:
        if family.parts.projector_norm:
            outside.append(Fold(family.parts.projector_norm, family.parts.projector[:1]))
    else:
        outside.append(Fold(f"{root}.{names.merger_norm}", (f"{root}.{names.merger_up}",)))
    return Half("vision", f"{root}.{names.blocks}", tuple(folds), tuple(outside))
