"""Which fusions to apply, and in which order: a beam over partial choices, per set of candidates that overlap.

A node can be in one kernel only, so an early small fusion can forbid a larger one. Candidates that share no node, even
through others, are chosen independently; within one such set the beam keeps the choices that save most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from foveola.lower.rewrite.passes.fuse import Candidate

WIDTH = 8


def choose(
    candidates: Sequence[Candidate], saving: Callable[[Candidate], float], width: int = WIDTH
) -> list[Candidate]:
    """Candidates without a common node that save most, as far as a beam of ``width`` sees. ``saving`` in seconds."""
    return [one for group in _overlapping(candidates) for one in _best(group, saving, width)]


def _overlapping(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    groups: list[tuple[set[ir.Node], list[Candidate]]] = []
    for one in candidates:
        nodes, members, apart = set(one.nodes), [one], []
        for group in groups:
            if group[0] & nodes:
                nodes |= group[0]
                members = group[1] + members
            else:
                apart.append(group)
        groups = [*apart, (nodes, members)]
    return [members for _, members in groups]


def _best(group: Sequence[Candidate], saving: Callable[[Candidate], float], width: int) -> list[Candidate]:
    worth = {index: saving(one) for index, one in enumerate(group)}
    useful = [index for index in worth if worth[index] > 0]
    beam: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    best = beam[0]
    while beam:
        grown: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {}
        for total, taken in beam:
            used = {node for index in taken for node in group[index].nodes}
            for index in useful:
                if index not in taken and not used & set(group[index].nodes):
                    grown[frozenset((*taken, index))] = (total + worth[index], (*taken, index))
        beam = sorted(grown.values(), key=lambda choice: -choice[0])[:width]
        if beam and beam[0][0] > best[0]:
            best = beam[0]
    return [group[index] for index in best[1]]
