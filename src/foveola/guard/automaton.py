"""Aho and Corasick's automaton (CACM 18(6), 1975) as flat arrays: built by level with numpy, stepped without it.

Nodes are numbered breadth first and, within a parent, by character, so the children of a node are neighbours and every
suffix link points to a smaller number. ``hold`` is what streaming needs: how many of the last characters may still
become a word.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
MAX_WORD = 256
"""Characters of a word in normal form, at most; a stream never holds back more."""
KNOWN = 1 << 16
"""Nodes whose children a ``Walker`` keeps in dictionaries, the first that are asked for: some 20 MB at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The automaton, int32 arrays over its nodes; node 0 is the root.

    ``first`` [nodes + 1]: the children of node s are ``first[s] .. first[s + 1] - 1``. ``label``: the code point that
    leads into a node. ``fail``: the node of the longest proper suffix. ``depth``: characters from the root. ``hold``:
    the length of the longest suffix that can grow into a word. ``cover``: the length of the longest word that ends here
    and counts anywhere. ``whole``: the nearest node, this one or along ``fail``, where a whole word ends (0: none).
    """

    first: Ints
    label: Ints
    fail: Ints
    depth: Ints
    hold: Ints
    cover: Ints
    whole: Ints

    def check(self) -> None:
        """Raise ValueError unless stepping through these tables always ends and stays inside them."""
        nodes = len(self.label)
        for one in fields(self):
            array = getattr(self, one.name)
            if len(array) != nodes + (one.name == "first") or array.min(initial=0) < 0:
                raise ValueError(f"the table {one.name} has a wrong length or a negative entry")
        if nodes < 1 or np.any(self.fail[1:] >= np.arange(1, nodes)) or self.fail[0] != 0:
            raise ValueError("a suffix link does not lead towards the root")
        if self.first[0] != 1 or self.first[-1] != nodes or np.any(np.diff(self.first) < 0):
            raise ValueError("the children of a node are out of order")
        if np.any(self.whole >= nodes) or np.any(self.whole > np.arange(nodes)) or self.depth[0] != 0:
            raise ValueError("a whole word lies outside the tables")
        if np.any(self.depth[1:] > MAX_WORD) or np.any(self.hold > self.depth) or np.any(self.cover > self.depth):
            raise ValueError("a length is longer than a word may be")
        if np.any(self.label > sys.maxunicode):
            raise ValueError("a label is no character")


def build(words: Mapping[str, bool]) -> Tables:
    """The automaton of ``words`` in normal form; a word's value is True where it counts only as a whole word."""
    ordered = sorted(words)
    codes, lengths = _matrix(ordered)
    parent, label, terminals = _nodes(codes, lengths)
    nodes = len(label)
    first = np.searchsorted(parent[1:], np.arange(nodes + 1)).astype(np.int32) + 1
    depth = np.zeros(nodes, np.int32)
    levels = _levels(parent, depth)
    fail = _fail_links(parent, label, levels)
    whole_words = np.array([words[word] for word in ordered], bool)
    cover = np.zeros(nodes, np.int32)
    cover[terminals[~whole_words]] = depth[terminals[~whole_words]]
    whole = np.zeros(nodes, np.int32)
    whole[terminals[whole_words]] = terminals[whole_words]
    hold = np.where(np.diff(first) > 0, depth, 0).astype(np.int32)
    for nodes_here in levels:  # what holds for the suffix holds here too, unless this node has something longer
        back = fail[nodes_here]
        cover[nodes_here] = np.where(cover[nodes_here] > 0, cover[nodes_here], cover[back])
        whole[nodes_here] = np.where(whole[nodes_here] > 0, whole[nodes_here], whole[back])
        hold[nodes_here] = np.where(hold[nodes_here] > 0, hold[nodes_here], hold[back])
    tables = Tables(first, label, fail, depth, hold, cover, whole)
    tables.check()
    return tables


def _matrix(ordered: Sequence[str]) -> tuple[Ints, Ints]:
    lengths = np.fromiter(map(len, ordered), np.int32, len(ordered))
    codes = np.zeros((len(ordered), int(lengths.max(initial=1))), np.int32)
    flat = np.frombuffer("".join(ordered).encode("utf-32-le", "surrogatepass"), np.int32)
    codes[np.arange(codes.shape[1]) < lengths[:, None]] = flat
    return codes, lengths


def _nodes(codes: Ints, lengths: Ints) -> tuple[Ints, Ints, Ints]:
    """Parents and labels by node, and the last node of every word. Rows of ``codes`` are sorted."""
    words, width = codes.shape
    differs = np.ones((words, width), bool)
    if words:
        differs[1:] = np.logical_or.accumulate(codes[1:] != codes[:-1], axis=1)
    parents, labels = [np.zeros(1, np.int32)], [np.zeros(1, np.int32)]
    above = np.zeros(words, np.int32)  # the node of each row's prefix so far
    terminals = np.zeros(words, np.int32)
    count = 1
    for column in range(width if words else 0):
        alive = lengths > column
        starts = differs[:, column] & alive
        number = (count - 1 + np.cumsum(starts)).astype(np.int32)
        parents.append(above[starts])
        labels.append(codes[starts, column])
        above = np.where(alive, number, above).astype(np.int32)
        ends = lengths == column + 1
        terminals[ends] = number[ends]
        count += int(starts.sum())
    return np.concatenate(parents), np.concatenate(labels), terminals


def _levels(parent: Ints, depth: Ints) -> list[NDArray[np.int64]]:
    """The nodes of each depth from 1 on; fills ``depth``."""
    levels: list[NDArray[np.int64]] = []
    low, high = 1, int(np.searchsorted(parent[1:], 1)) + 1
    while low < high:
        here = np.arange(low, high)
        depth[low:high] = len(levels) + 1
        levels.append(here)
        low, high = high, int(np.searchsorted(parent[1:], high)) + 1
    return levels


def _fail_links(parent: Ints, label: Ints, levels: Sequence[NDArray[np.int64]]) -> Ints:
    key = (parent.astype(np.int64) << 32) | label
    key[0] = -1
    fail = np.zeros(len(label), np.int32)
    for here in levels[1:]:
        state = fail[parent[here]].astype(np.int64)
        open_ = np.arange(len(here))
        while len(open_):
            wanted = (state[open_] << 32) | label[here[open_]]
            at = np.searchsorted(key, wanted)
            found = key[np.minimum(at, len(key) - 1)] == wanted
            fail[here[open_[found]]] = at[found]
            open_ = open_[~found & (state[open_] > 0)]
            state[open_] = fail[state[open_]]
    return fail


class Walker:
    """The tables in a form that plain Python steps through quickly.

    The children of a node become a dictionary when they are first asked for; once there are ``KNOWN`` of these, those
    of the others are found in ``labels``. ``known[0]``, the root's, is there from the beginning. A child where any word
    ends is written as minus its number, so that a step tells it without a further look.
    """

    def __init__(self, tables: Tables) -> None:
        def plain(array: Ints) -> memoryview:
            return np.ascontiguousarray(array, np.int32).data

        self.first, self.fail = plain(tables.first), plain(tables.fail)
        self.depth, self.hold = plain(tables.depth), plain(tables.hold)
        self.cover, self.whole = plain(tables.cover), plain(tables.whole)
        self.event = ((tables.cover > 0) | (tables.whole > 0)).tobytes()  # whether any word ends at a node
        self.labels = np.ascontiguousarray(tables.label, "<i4").tobytes().decode("utf-32-le", "surrogatepass")
        self.known: dict[int, dict[str, int]] = {0: self._children(0)}

    def child(self, state: int, character: str) -> int | None:
        """The signed child of a node that is not in ``known``, if there is one; may put the node there."""
        if len(self.known) < KNOWN:
            children = self.known[state] = self._children(state)
            return children.get(character)
        at = self.labels.find(character, self.first[state], self.first[state + 1])
        return None if at < 0 else -at if self.event[at] else at

    def _children(self, state: int) -> dict[str, int]:
        nodes = range(self.first[state], self.first[state + 1])
        return {self.labels[at]: -at if self.event[at] else at for at in nodes}

    def step(self, state: int, character: str) -> int:
        """The node after reading one character of normal form at node ``state``."""
        known, child, fail = self.known, self.child, self.fail
        while True:
            children = known.get(state)
            found = child(state, character) if children is None else children.get(character)
            if found is not None:
                return abs(found)
            if not state:
                return 0
            state = fail[state]
