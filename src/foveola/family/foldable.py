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
    """``targets`` read what ``source`` gives; paths begin at the block.

    With ``parts`` above 1 the source holds several layers in one, and only the last of so many equal parts of its rows
    feeds them (value within query_key_value, up within gate_up).
    """

    source: str
    targets: tuple[str, ...]
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Half:
    """Vision tower or decoder: its list of blocks, and the folds of every block.

    ``tail`` is the module between the tower's blocks and the decoder, empty where there is none.
    """

    name: str
    blocks: str
    folds: tuple[Fold, ...]
    tail: str = ""
    tail_folds: tuple[Fold, ...] = ()


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
    if family.parts.projector:
        norm, up = family.parts.projector_norm, family.parts.projector[0]
    else:
        norm, up = f"{root}.{names.merger_norm}", f"{root}.{names.merger_up}"
    tail = _common_root(norm or up, up)
    inside = len(tail) + 1
    tail_folds = (Fold(norm[inside:], (up[inside:],)),) if norm and tail else ()
    return Half("vision", f"{root}.{names.blocks}", tuple(folds), tail, tail_folds)


def _common_root(one: str, other: str) -> str:
    """The path of the module that holds both: ``model.visual.merger`` of its norm and its first layer."""
    shared = []
    for a, b in zip(one.split(".")[:-1], other.split(".")[:-1], strict=False):
        if a != b:
            break
        shared.append(a)
    return ".".join(shared)
